//! `ember devices`: what the compiled-in backends can run on.
use super::Outcome;
use anyhow::Result;
use ember::backend::{BackendKind, devices};
use std::io::{self, Write};

/// List the devices that this binary can run models on
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ember devices
  ember run --backend vulkan --device 1 -m model.gguf \"Hello\"")]
pub struct Args {}

/// Prints each backend with its devices, or why it has none.
pub fn run(_args: Args) -> Result<Outcome> {
    let mut out = io::stdout().lock();
    for &backend in BackendKind::COMPILED {
        match devices(backend) {
            Ok(devices) if devices.is_empty() => writeln!(out, "{backend}: no device found")?,
            Ok(devices) => {
                for device in devices {
                    writeln!(out, "{backend} {}: {}", device.index, device.name)?;
                    for fact in device.facts {
                        writeln!(out, "    {fact}")?;
                    }
                }
            }
            Err(error) => writeln!(out, "{backend}: {error:#}")?,
        }
    }
    out.flush()?;
    Ok(Outcome::Done)
}
