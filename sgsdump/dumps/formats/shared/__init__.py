"""What several formats read and write: .npy files, members of archives, manifests, Ascend's types, torch's pickles."""
