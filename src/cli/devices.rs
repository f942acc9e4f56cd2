//! `ember devices`: what the compiled-in backends can run on.
use super::Outcome;
use super::args::backend_parser;
use super::progress::Spinner;
use super::visible::visible;
use anyhow::{Result, bail};
use ember::device::{self, BackendKind, devices};
use std::io::{self, Write};

/// List the devices that this binary can run models on
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ember devices
  ember devices --check --backend vulkan
  ember run --backend vulkan --device 1 -m model.gguf \"Hello\"")]
pub struct Args {
    /// Run every kernel on a device and compare the results with the CPU's
    #[arg(long)]
    check: bool,
    /// Measure single products on a device beside what it does at best
    #[arg(long)]
    measure: bool,
    /// Backend to list or check [default: list all that are compiled in, check the first]
    #[arg(long, value_parser = backend_parser())]
    backend: Option<BackendKind>,
    /// Device to check or measure
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
}

/// Prints each backend with its devices, or why it has none; or checks a device.
pub fn run(args: Args) -> Result<Outcome> {
    let backend = args.backend.unwrap_or_default();
    if args.check {
        check(backend, args.device)?;
    }
    if args.measure {
        device::measure(backend, args.device, &mut |line| println!("{line}"))?;
    }
    if args.check || args.measure {
        return Ok(Outcome::Done);
    }
    let mut out = io::stdout().lock();
    let all = BackendKind::COMPILED;
    for &backend in args.backend.as_ref().map_or(all, std::slice::from_ref) {
        match devices(backend) {
            Ok(devices) if devices.is_empty() => writeln!(out, "{backend}: no device found")?,
            Ok(devices) => {
                for device in devices {
                    writeln!(out, "{backend} {}: {}", device.index, visible(&device.name))?;
                    for fact in device.facts {
                        writeln!(out, "    {}", visible(&fact))?;
                    }
                }
            }
            Err(error) if args.backend.is_some() => return Err(error.into()),
            Err(error) => writeln!(out, "{backend}: {}", visible(&format!("{error:#}")))?,
        }
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// Prints every comparison that does not hold, and how many do.
fn check(backend: BackendKind, index: usize) -> Result<()> {
    let (mut held, mut failed) = (0usize, 0usize);
    let mut spinner = Some(Spinner::start(format!("checking the kernels of {backend} {index}")));
    device::check(backend, index, &mut |holds, what| {
        if holds {
            held += 1;
        } else {
            failed += 1;
            drop(spinner.take());
            eprintln!("wrong: {what}");
        }
    })?;
    drop(spinner);
    println!("{held} of {} comparisons hold", held + failed);
    if failed > 0 {
        bail!("{failed} kernels of {backend} {index} give wrong results: do not use this device");
    }
    Ok(())
}
