"""Models as files: HF-style folders in, a `ModelSpec`, streamed tensors, a tokenizer and the hashes that identify them out.

Lives here: config parsing, the safetensors loader, the GGUF importer, the demo model.
No forward pass (that is `engine.runner`), no KV, no gRPC.
Imported by `engine`, `quant` and the worker's start-up.
"""
