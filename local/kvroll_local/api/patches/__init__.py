"""The ways to change an object: merge patch, JSON patch, server-side apply. Pure: values in, values out; imports nothing of ours."""
