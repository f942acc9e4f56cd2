"""The tiny vision models that are made; README.md beside this file says what each is for."""

from vision_hf import Spec

TEXT = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
    rms_norm_eps=1e-5,
)
MISTRAL_SMALL = dict(
    TEXT, max_position_embeddings=131072, rope_parameters={"rope_type": "default", "rope_theta": 1e9}, sliding_window=None
)
MINISTRAL = dict(
    TEXT, hidden_size=96, max_position_embeddings=262144, rope_parameters={
        "type": "yarn", "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
    },
)
TOWER = dict(hidden_size=32, intermediate_size=96, num_hidden_layers=3, num_attention_heads=2)

SPECS = [
    Spec("gelu-2", "ministral3", MINISTRAL, seed=20, one=(10, 6), two=((6, 4), (4, 10)),
         vision=dict(TOWER, hidden_act="gelu", patch_size=14, image_size=560),
         extra={"spatial_merge_size": 2, "multimodal_projector_bias": False}),
    Spec("silu-2", "mistral", MISTRAL_SMALL, seed=21, one=(10, 6), two=((6, 4), (4, 10)),
         vision=dict(TOWER, hidden_act="silu", patch_size=14, image_size=560),
         extra={"spatial_merge_size": 2, "multimodal_projector_bias": True}),
    # The pixels' mean and standard deviation are not CLIP's: they have to come from the file.
    Spec("silu-1", "mistral", MISTRAL_SMALL, seed=22, one=(5, 3), two=((3, 2), (2, 5)), pixtral_12b=True,
         vision=dict(TOWER, hidden_act="silu", patch_size=16, image_size=1024),
         extra={"multimodal_projector_bias": True}, mean=(0.5, 0.4, 0.3), std=(0.25, 0.3, 0.35)),
]
