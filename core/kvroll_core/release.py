"""The version of everything here. The build reads it from this file, so that telling it needs no package metadata."""

VERSION = "0.1.0"
