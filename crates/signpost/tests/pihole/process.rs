//! The binary as a separate process: started with settings in its environment, as in a pod, and observed from outside.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};
use signpost_testkit::eventually;

use crate::common::{Bed, PATIENCE, TARGET};

/// An operator process. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    printed: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Process {
    /// Starts the operator on a test's namespace with the three required settings, and `more`.
    pub(crate) fn start(bed: &Bed, url: &str, token: &str, more: &[(&str, &str)]) -> Self {
        let kubeconfig = bed.cluster.kubeconfig();
        let settings = [
            ("KUBECONFIG", kubeconfig.to_str().unwrap()),
            ("WATCH_NAMESPACE", &bed.namespace),
            ("POD_NAMESPACE", &bed.namespace),
            ("PIHOLE_URL", url),
            ("PIHOLE_API_TOKEN", token),
            ("DEFAULT_TARGET_IP", TARGET),
        ];
        let mut child = Command::new(env!("CARGO_BIN_EXE_signpost"))
            .arg("run")
            .env_clear()
            .envs([("HOME", "/nonexistent"), ("HEALTH_ADDRESS", "127.0.0.1:0"), ("LOG_FORMAT", "json")])
            .envs(settings)
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let printed = Arc::new(Mutex::new(String::new()));
        let (stderr, lines) = (child.stderr.take().unwrap(), Arc::clone(&printed));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut lines = lines.lock().unwrap();
                lines.push_str(&line);
                lines.push('\n');
            }
        });
        Self { child, printed, reader: Some(reader) }
    }

    /// Everything it has printed.
    pub(crate) fn text(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// Its log lines.
    pub(crate) fn lines(&self) -> Vec<Map<String, Value>> {
        let text = self.text();
        text.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for a log line with this message, about this Ingress (`namespace/name`).
    pub(crate) async fn logs(&self, message: &str, ingress: &str) -> Map<String, Value> {
        eventually(&format!("{message:?} about {ingress}"), PATIENCE, || async {
            let found = self
                .lines()
                .into_iter()
                .find(|line| line["msg"] == message && line.get("ingress").is_some_and(|of| of == ingress));
            found.ok_or_else(|| self.text())
        })
        .await
    }

    /// Resident memory in KiB.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Stops it and waits for its end: exit code and everything it printed.
    pub(crate) async fn ended(self) -> (i32, String) {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        self.ends().await
    }

    /// Waits until it ends by itself: exit code and everything it printed.
    pub(crate) async fn ends(mut self) -> (i32, String) {
        let code = eventually("the process has ended", Duration::from_secs(30), || {
            let ended = self.child.try_wait().unwrap();
            std::future::ready(ended.and_then(|status| status.code()).ok_or("still running"))
        })
        .await;
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        (code, self.text())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
