"""Shared by several formats: .npy files, members of archives, manifests, Ascend's types, torch's pickles."""
