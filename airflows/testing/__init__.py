"""For users' tests and ours: the contract of backends, a fake backend, a clock moved by hand."""
