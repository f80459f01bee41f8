"""The collector ``tensorboard``: scalars from event files, without TensorBoard or TensorFlow."""
