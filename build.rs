//! Makes the gRPC client of the API out of `proto/`, without a `protoc` to be installed; and the server for the tests.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["proxy.proto"], ["proto"])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    for (folder, client) in [("client", true), ("server", false)] {
        let folder = out.join(folder);
        fs::create_dir_all(&folder)?;
        let code = tonic_prost_build::configure().build_client(client).build_server(!client).out_dir(folder);
        code.compile_fds(descriptors.clone())?;
    }
    Ok(())
}
