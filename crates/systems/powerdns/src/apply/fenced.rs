//! The server as only a leader may change it.
//!
//! A pass may take minutes and a process may be frozen in the middle of one; when it runs again, another replica may lead.
//! So the right to write is asked for right before each change, by everything that changes the server, not once a pass.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use signpost_dns::ZoneName;
use signpost_engine::Writer;
use signpost_provider_powerdns::{
    Change, Health, NewZone, Patched, ServerError, ServerInfo, ServerSet, ZoneContents, ZoneInfo, ZoneServer,
    ZoneSettings,
};

/// Whether this process may write now.
type MayWrite = Box<dyn Fn() -> bool + Send + Sync>;

/// A server whose changes are refused once this process may not write any more. Reads go through.
pub(crate) struct Fenced {
    server: Arc<dyn ZoneServer>,
    may_write: MayWrite,
}

impl Fenced {
    pub(crate) fn new(server: Arc<dyn ZoneServer>, writer: Writer) -> Self {
        Self { server, may_write: Box::new(move || writer.may_write()) }
    }

    fn change<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn ZoneServer) -> BoxFuture<'a, Result<T, ServerError>>,
    ) -> BoxFuture<'a, Result<T, ServerError>> {
        if (self.may_write)() {
            call(&*self.server)
        } else {
            futures::future::ready(Err(ServerError::NotLeading)).boxed()
        }
    }
}

impl ZoneServer for Fenced {
    fn server(&self) -> BoxFuture<'_, Result<ServerInfo, ServerError>> {
        self.server.server()
    }

    fn zone<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        self.server.zone(zone)
    }

    fn read<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<Option<ZoneContents>, ServerError>> {
        self.server.read(zone)
    }

    fn read_each<'a>(
        &'a self,
        zone: &'a ZoneName,
        each: &'a mut (dyn FnMut(ServerSet) + Send),
    ) -> BoxFuture<'a, Result<Option<ZoneInfo>, ServerError>> {
        self.server.read_each(zone, each)
    }

    fn create<'a>(&'a self, zone: &'a NewZone) -> BoxFuture<'a, Result<ZoneInfo, ServerError>> {
        self.change(|server| server.create(zone))
    }

    fn configure<'a>(
        &'a self,
        zone: &'a ZoneName,
        settings: &'a ZoneSettings,
    ) -> BoxFuture<'a, Result<(), ServerError>> {
        self.change(|server| server.configure(zone, settings))
    }

    fn patch<'a>(&'a self, zone: &'a ZoneName, changes: &'a [Change]) -> BoxFuture<'a, Result<Patched, ServerError>> {
        self.change(|server| server.patch(zone, changes))
    }

    fn delete<'a>(&'a self, zone: &'a ZoneName) -> BoxFuture<'a, Result<bool, ServerError>> {
        self.change(|server| server.delete(zone))
    }

    fn health(&self) -> Health {
        self.server.health()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::Fqdn;
    use signpost_provider_powerdns::{Call, MemoryServer};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test]
    async fn a_closed_fence_stops_every_change_and_no_read() {
        let memory = MemoryServer::new();
        let open = Arc::new(AtomicBool::new(true));
        let asked = open.clone();
        let fenced =
            Fenced { server: Arc::new(memory.clone()), may_write: Box::new(move || asked.load(Ordering::SeqCst)) };
        let zone = ZoneName::parse("example.com").unwrap();
        let new = |name: &ZoneName| NewZone {
            name: name.clone(),
            kind: "Native".into(),
            nameservers: vec![Fqdn::parse("ns1.example.org").unwrap()],
            settings: ZoneSettings::default(),
        };
        fenced.create(&new(&zone)).await.unwrap();
        open.store(false, Ordering::SeqCst);
        let before = memory.log().len();
        let other = ZoneName::parse("example.net").unwrap();
        assert_eq!(fenced.create(&new(&other)).await, Err(ServerError::NotLeading));
        assert_eq!(fenced.configure(&zone, &ZoneSettings::default()).await, Err(ServerError::NotLeading));
        assert_eq!(fenced.patch(&zone, &[]).await, Err(ServerError::NotLeading));
        assert_eq!(fenced.delete(&zone).await, Err(ServerError::NotLeading));
        assert_eq!(memory.log().len(), before, "nothing reaches the server");
        assert!(fenced.zone(&zone).await.unwrap().is_some() && fenced.read(&zone).await.unwrap().is_some());
        assert_eq!(memory.log().iter().filter(|call| matches!(call, Call::Zone(_) | Call::Read(_))).count(), 2);
    }
}
