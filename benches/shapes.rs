//! Decode at batch 1, 8 and 32, prefill of 512 and 4096 tokens, contexts of 1k and 16k, on the shapes of Qwen3-0.6B, Qwen3-8B
//! and Mistral-Small-24B with random weights, each beside the device's floor; on a GPU all kernels are checked first.
//!
//! `cargo bench -p ember --bench shapes -- [--backend NAME] [--quick] [--smoke] [--keep]`, with `--features cuda` (or another
//! backend) on a GPU. All shapes need 60 GB of disk and, on a CPU, hours: `--quick` takes the smallest, and without any
//! option that is what runs. The measurements are `scripts/gpu_report.sh`, which also runs where there is no Rust.
use ember::device::BackendKind;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    // Cargo says `--bench` to every benchmark.
    let mut options: Vec<String> = std::env::args().skip(1).filter(|option| option != "--bench").collect();
    let mut backend = BackendKind::default().to_string();
    if let Some(at) = options.iter().position(|option| option == "--backend") {
        backend = options.get(at + 1).cloned().unwrap_or(backend);
        options.drain(at..options.len().min(at + 2));
    }
    if options.is_empty() {
        options.push("--quick".to_owned());
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/gpu_report.sh");
    let run =
        Command::new("bash").arg(script).arg(env!("CARGO_BIN_EXE_ember")).arg(backend).args(options).status();
    match run {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("{script} ended with {status}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot run bash, which {script} needs: {error}");
            ExitCode::FAILURE
        }
    }
}
