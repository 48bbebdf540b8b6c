//! Generates the code of the gRPC service in `proto/`, without a `protoc` to be installed: the client for the program,
//! and beside it the server, which tests include by `OUT_DIR` and nothing else does.

use std::{env, error::Error, fs, path::PathBuf};

const FOLDER: &str = "proto";
const FILE: &str = "proto/sandbox_service.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let service = protox::compile([FILE], [FOLDER])?;
    for (side, is_server) in [("client", false), ("server", true)] {
        let folder = out.join(side);
        fs::create_dir_all(&folder)?;
        tonic_prost_build::configure()
            .build_client(!is_server)
            .build_server(is_server)
            // Connecting is ours: the generated one would be a second way, without its settings.
            .build_transport(false)
            .out_dir(folder)
            .compile_fds(service.clone())?;
    }
    Ok(())
}
