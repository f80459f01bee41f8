"""Commands on manifests: preview one, write templates, convert those of FfDL."""
