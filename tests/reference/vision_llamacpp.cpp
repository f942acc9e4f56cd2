// llama.cpp's vision path on one image: its preprocessing for Pixtral, then the encoder, as mtmd_encode_chunk calls them.
// It uses mtmd's inner functions: these give the pixels that the encoder sees, and need no text model.
//
// usage: vision_llamacpp MMPROJ WIDTH HEIGHT RGB_FILE OUT_PREFIX THREADS REPETITIONS FLASH(0|1)
//
// Reads 8-bit RGB. Writes OUT_PREFIX.pixels, f32 [height, width, 3], and OUT_PREFIX.embeddings, f32 [tokens, width]. Prints
// the size after resizing, then one line `encode MILLISECONDS CPU_MILLISECONDS` for each repetition.

#include "clip-impl.h"
#include "clip.h"
#include "mtmd-image.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

static void write_floats(const std::string & path, const std::vector<float> & values) {
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float));
}

int main(int argc, char ** argv) {
    if (argc != 9) {
        fprintf(stderr, "usage: vision_llamacpp MMPROJ WIDTH HEIGHT RGB_FILE OUT_PREFIX THREADS REPETITIONS FLASH(0|1)\n");
        return 2;
    }
    const std::string prefix = argv[5];
    const int threads = atoi(argv[6]), repetitions = atoi(argv[7]);

    clip_context_params params{};
    params.use_gpu = false;
    params.flash_attn_type = atoi(argv[8]) ? CLIP_FLASH_ATTN_TYPE_ENABLED : CLIP_FLASH_ATTN_TYPE_DISABLED;
    params.image_min_tokens = params.image_max_tokens = -1;  // what the projector type prescribes
    clip_ctx * ctx = clip_init(argv[1], params).ctx_v;
    if (!ctx) {
        fprintf(stderr, "cannot load %s\n", argv[1]);
        return 1;
    }

    std::ifstream file(argv[4], std::ios::binary);
    const std::vector<uint8_t> rgb((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    clip_image_u8 image;
    image.set_size({atoi(argv[2]), atoi(argv[3])}, false);
    if (rgb.size() != image.n_elements()) {
        fprintf(stderr, "%s holds %zu bytes, not width x height x 3\n", argv[4], rgb.size());
        return 1;
    }
    image.cpy_buf(rgb);
    const clip_image_f32 pixels = mtmd_image_preprocessor_dyn_size(ctx).preprocess(image).entries.at(0);
    write_floats(prefix + ".pixels", pixels.get_ro_buf());
    printf("size %d %d\n", pixels.nx(), pixels.ny());

    std::vector<float> embeddings((size_t) clip_n_output_tokens(ctx, &pixels) * clip_n_mmproj_embd(ctx));
    for (int i = 0; i < repetitions; i++) {
        const auto start = std::chrono::steady_clock::now();
        const clock_t cpu_start = clock();
        if (!clip_image_encode(ctx, threads, &pixels, embeddings)) {
            fprintf(stderr, "the encoder failed\n");
            return 1;
        }
        const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
        printf("encode %.2f %.2f\n", spent.count(), 1000.0 * (clock() - cpu_start) / CLOCKS_PER_SEC);
    }
    write_floats(prefix + ".embeddings", embeddings);
    clip_free(ctx);
}
