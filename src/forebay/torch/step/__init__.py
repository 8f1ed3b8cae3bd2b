"""What of a training step is in no block: the loss of a large vocabulary, and what an optimizer keeps."""
