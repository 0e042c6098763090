//! Stands in for the sandbox's own types until they have landed, so that everything else here can be built on.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unused_self, clippy::unimplemented, clippy::unused_async)]

#[derive(Default)]
pub struct SandboxOptions {}
pub struct Sandbox;
pub struct Served;

impl Served {
    pub fn kubeconfig(&self) -> String {
        unimplemented!()
    }
}

impl Sandbox {
    pub fn new(_: SandboxOptions) -> Self {
        Self
    }
    pub fn client(&self) -> kube::Client {
        unimplemented!()
    }
    pub async fn serve(&self, _: std::net::SocketAddr) -> std::io::Result<Served> {
        unimplemented!()
    }
    pub fn forget_history(&self) {}
}
