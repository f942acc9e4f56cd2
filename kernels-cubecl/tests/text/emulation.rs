//! The emulator notices what CUDA leaves undefined, and kernels that compute something else.
use crate::attention_support::{Problem, Sequence, layout};
use crate::blocks::{random_rows, weights};
use crate::device::upload;
use crate::emulator::{Edit, Launch, Program, aliases};
use crate::runtime::Code;
use crate::under_test::edited;
use ember_kernels_cubecl::kv::KvType;
use ember_kernels_cubecl::{DeviceMatrix, GgmlType, linear};
use ember_test_support::{definition, distance, random};

/// Runs the statements of a kernel over `out`, 256 floats, in blocks of 64 threads with 128 floats of shared memory.
fn run(grid: u32, statements: &str) -> Result<Vec<f32>, String> {
    let text = format!(
        "#include <cuda_runtime.h>\n#include <mma.h>\nstruct info_st {{ unsigned zero; }};
        extern \"C\" __global__ void __launch_bounds__(64)kernel (float* out, const __grid_constant__ info_st info) {{
        extern __shared__ __align__(32) unsigned char dynamic_shared_mem[];
        float *shared = reinterpret_cast<float*>(&dynamic_shared_mem[0]);
        const unsigned i = threadIdx.x;
        {statements}
        }}"
    );
    let program = Program::compile(&Code { text, shared_memory: Some(512), ..Code::default() })?;
    let launch = Launch {
        grid: [grid, 1, 1],
        block: [64, 1, 1],
        info: vec![0],
        allocations: vec![vec![0; 1024]],
        buffers: vec![[0, 0, 1024]],
    };
    let floats = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    Ok(floats(&program.run(&launch)?[0]))
}

fn fault(grid: u32, statements: &str) -> String {
    run(grid, statements).expect_err("it is wrong")
}

#[test]
fn barriers_and_shuffles_pass_values() {
    let reversed = run(1, "shared[i] = i; __syncthreads(); out[i] = shared[63 - i];").unwrap();
    assert!(reversed[..64].iter().enumerate().all(|(i, &x)| x == 63.0 - i as f32), "{reversed:?}");
    let swapped = run(1, "out[i] = __shfl_xor_sync(-1, float(i), 5);").unwrap();
    assert!(swapped[..64].iter().enumerate().all(|(i, &x)| x == (i ^ 5) as f32), "{swapped:?}");
}

#[test]
fn fragments_are_multiplied_by_their_layouts() {
    let out = run(
        1,
        "using namespace nvcuda::wmma;
        fragment<matrix_a, 16, 16, 16, __half, row_major> a;
        fragment<matrix_b, 16, 16, 16, __half, col_major> b;
        fragment<accumulator, 16, 16, 16, float> sum;
        __half *halves = reinterpret_cast<__half*>(shared);
        for (unsigned j = 4 * i; j < 4 * i + 4; j++) halves[j] = __half(float(j % 11));
        __syncthreads();
        if (i < 32) {
            fill_fragment(sum, 0.5f);
            load_matrix_sync(a, halves, 8);
            load_matrix_sync(b, halves, 16);
            mma_sync(sum, a, b, sum);
            store_matrix_sync(out, sum, 16, mem_row_major);
        }",
    )
    .unwrap();
    // Rows of A overlap; columns of B are what is contiguous.
    let value = |i: usize| (i % 11) as f32;
    for (i, &x) in out.iter().enumerate() {
        let (m, n) = (i / 16, i % 16);
        let expected = 0.5 + (0..16).map(|k| value(8 * m + k) * value(16 * n + k)).sum::<f32>();
        assert_eq!(x, expected, "row {m}, column {n}");
    }
}

#[test]
fn undefined_accesses_are_faults() {
    assert!(fault(1, "out[i + 193] = 0;").contains("writes 4 bytes"));
    assert!(fault(1, "out[0 - i] = 0;").contains("writes 4 bytes"));
    assert!(fault(1, "shared[i + 65] = 0;").contains("writes 4 bytes"));
    assert!(fault(1, "out[i] = shared[i];").contains("shared memory byte 0 is read, but was never written"));
    assert!(fault(1, "shared[i] = i; out[i] = shared[i ^ 1];").contains("never written"));
    // The neighbour has written before, so the value would be right in this order.
    assert!(
        fault(1, "shared[i] = i; out[i] = shared[i & 62];").contains("reads what was written by thread 0")
    );
    let overwritten = "shared[i] = i; __syncthreads(); out[i] = shared[(i + 1) % 64]; shared[i] = 0;";
    assert!(fault(1, overwritten).contains("overwrites what was read by thread 0"));
    assert!(fault(2, "out[i] = 1;").contains("writes after thread 0 of block 0"));
    let unaligned = "*reinterpret_cast<double*>(&out[1]) = 0;";
    assert!(fault(1, unaligned).contains("8 bytes are not aligned"));
}

#[test]
fn threads_that_do_not_meet_are_faults() {
    assert!(fault(1, "if (i < 32) __syncthreads();").contains("threads 0 and 32 do not meet"));
    let apart = "if (i < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}";
    assert!(fault(1, apart).contains("do not meet"));
    assert!(fault(1, "if (i < 40) out[i] = __shfl_xor_sync(-1, 1.0f, 1);").contains("do not meet"));
}

#[test]
fn memory_that_is_written_is_bound_once() {
    // Two windows of one allocation that overlap, and neighbours of them.
    let buffers = [[0, 0, 64], [0, 60, 64], [1, 0, 64], [0, 124, 4]];
    assert_eq!(aliases(&buffers, &[false, false, true, true]), None);
    assert_eq!(aliases(&buffers, &[false, true, false, false]), Some([0, 1]));
    assert_eq!(aliases(&buffers, &[true, false, false, false]), Some([0, 1]));
}

/// The error of a product of `tokens` rows with a Q4_K matrix whose kernels are edited; infinite for a fault.
fn edited_product(tokens: usize, edit: Edit) -> f64 {
    let gpu = edited(edit);
    let (ty, rows, cols) = (GgmlType::Q4_K, 70, 256);
    let gguf = random_rows(ty, rows, cols, 1);
    let matrix = DeviceMatrix::upload(&gpu, "test", ty, cols, &[&gguf], &mut |_| ()).unwrap();
    let x = random(2, tokens * cols);
    let weights = weights(ty, &gguf);
    let y = linear::linear(&gpu, &upload(&gpu, &x), &matrix, 0, &[rows]);
    let expected = definition::product(&x, &weights, cols);
    gpu.read_f32(&y[0]).map_or(f64::INFINITY, |y| distance(&y, &expected))
}

#[test]
fn edits_of_the_products_are_noticed() {
    // A row, and on matrix units small and large tiles.
    for tokens in [1, 17, 40] {
        assert!(edited_product(tokens, |text| text) < 1e-3);
    }
    // One lane's sums are not added.
    assert!(edited_product(1, |text| text.replace("offset < warpSizeChecked", "offset < 16")) > 0.1);
    // The wrong nibble.
    assert!(edited_product(1, |text| text.replace(">> uint32(4)", ">> uint32(5)")) > 0.01);
    assert!(edited_product(17, |text| text.replace(">> uint32(4)", ">> uint32(5)")) > 0.01);
    // Fragments from the wrong rows, at either size of tile.
    assert!(edited_product(17, |text| text.replacen(", uint32(72)", ", uint32(64)", 1)) > 0.1);
    assert!(edited_product(40, |text| text.replacen(", uint32(40)", ", uint32(32)", 1)) > 0.1);
    // Barriers: before fragments are loaded, before they are overwritten, and the same where sums leave.
    for edit in [0, 1, 2, 3].map(without_barrier) {
        assert!(edited_product(40, edit).is_infinite());
    }
}

/// Attention of causal rows of which the last five see a value that is NaN; true if it breaks those only.
fn edited_attention(edit: Edit) -> bool {
    let (gpu, dim) = (edited(edit), 32);
    let layout = layout(KvType::F32, 8, 1, dim);
    let sequences = [Sequence::causal(20, 20)];
    let problem = Problem::changed(&gpu, layout, 1, &sequences, |_, _, [_, v]| v[15 * dim] = f32::NAN);
    let rows = problem.run(&gpu);
    rows.chunks(dim).enumerate().all(|(row, y)| y[0].is_nan() == (row >= 15) && y[1].is_finite())
}

#[test]
fn edits_of_attention_are_noticed() {
    assert!(edited_attention(|text| text));
    // What a row does not see is multiplied.
    assert!(!edited_attention(|text| text.replace("!= uint32(3212836864)", "!= uint32(0)")));
}

/// Takes the barrier of that number out of a product on matrix units.
fn without_barrier(number: usize) -> Edit {
    fn without<const N: usize>(text: String) -> String {
        if !text.contains("mma_sync") {
            return text;
        }
        let (at, barrier) = text.match_indices("__syncthreads();").nth(N).expect("there are more");
        text[..at].to_owned() + &text[at + barrier.len()..]
    }
    [without::<0>, without::<1>, without::<2>, without::<3>][number]
}
