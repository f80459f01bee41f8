"""Commands that move files: download, cp, files, checkpoint, data, store. One module each."""
