"""One file per framework: the tensors of a model, and passes that report every module to a probe."""
