"""A comparison as pictures: the error over depth, and the histograms of both sides over each other."""
