"""llama.cpp through the xllamacpp package: one model, one slot."""

import json
import urllib.request

import xllamacpp


class LlamaCpp:
    def __init__(self, path, threads=1, n_ctx=1024, kv_type="f16", flash_attention="auto"):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = n_ctx
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.verbosity = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_type_k = params.cache_type_v = {
            "f16": xllamacpp.ggml_type.GGML_TYPE_F16, "f32": xllamacpp.ggml_type.GGML_TYPE_F32,
        }[kv_type]
        params.flash_attn_type = {
            "auto": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO,
            "off": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        }[flash_attention]
        self.server = xllamacpp.Server(params)

    def post(self, path: str, body: dict) -> dict:
        request = urllib.request.Request(
            self.server.listening_address + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def complete(self, ids: list[int], count: int, **options) -> dict:
        return self.post("/completion", {
            "prompt": ids, "n_predict": count, "temperature": 0, "return_tokens": True, "cache_prompt": False, **options,
        })

    def tokenize(self, text: str) -> list[int]:
        return self.post("/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"]

    def end_tokens(self) -> set[int]:
        """The end-of-generation set, which the server turns into a bias when it is told to ignore it."""
        answer = self.complete(self.tokenize("a"), 1, ignore_eos=True)
        return {entry["token"] for entry in answer["generation_settings"]["logit_bias"]}

    def next_logprobs(self, ids: list[int], top: int, ascii_id: int, cache: bool = False) -> tuple[list[int], list[float]]:
        """The `top` likeliest tokens after `ids` and their log-probabilities: the softmax of the raw logits over the
        whole vocabulary, before any sampler. The server drops them when the sampled token ends inside a UTF-8
        character, so sampling (only) is forced to `ascii_id`, a token of plain text."""
        answer = self.complete(
            ids, 1, n_probs=top, post_sampling_probs=False, logit_bias=[[ascii_id, 1e6]], cache_prompt=cache,
        )
        row = answer["completion_probabilities"][0]["top_logprobs"]
        return [entry["id"] for entry in row], [entry["logprob"] for entry in row]
