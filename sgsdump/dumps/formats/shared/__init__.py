"""Code that several formats share: .npy files, zip members, manifests, Ascend element types, torch pickles."""
