//! A server process that cannot outlive the test process.
//!
//! ```text
//!   test process ──stdin pipe──► sh (own process group) ──► server
//! ```
//!
//! The shell ends the server when the pipe closes; the kernel closes it when the test process ends in any way. Each server has its own
//! directory, removed at its end. After a panic its log is kept, and the panic output names it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, Once, PoisonError};

use crate::binaries::cache_dir;

/// Starts "$@", prints its pid, and stops it when stdin closes. `$1` is its directory, which is then removed: completely, or without the
/// log (`keep`), or not at all (`reuse`). The files of a server that ends by itself are kept for inspection.
const WATCHDOG: &str = r#"
dir=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- >>"$LOG" 2>&1 &
child=$!
echo "$child"
exec >/dev/null 2>&1
(
  read -r _ <&3
  : >"$dir/stopping"
  kill -CONT "$child"; kill -TERM "$child"
  tries=0
  while kill -0 "$child" && [ "$tries" -lt 20 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -KILL "$child"
) &
reader=$!
exec 3<&-
wait "$child"; code=$?
kill "$reader"
if [ -e "$dir/stopping" ] && [ ! -e "$dir/reuse" ]; then
  if [ -e "$dir/keep" ]; then rm -rf "$dir/data"; else rm -rf "$dir"; fi
fi
exit "$code"
"#;

/// The program to start.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// For messages and the directory name.
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// From [`scratch_dir`]: contains `data/` and the log.
    pub(crate) dir: PathBuf,
}

/// A running server. Dropping it stops it, waits for its end and removes its directory.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    shell: Child,
    pipe: Option<ChildStdin>,
    pid: u32,
    dir: PathBuf,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(spec: &Spec) -> Self {
        let log = spec.dir.join("log");
        File::options().create(true).append(true).open(&log).expect("the scratch directory is writable");
        for mark in ["stopping", "reuse"] {
            std::fs::remove_file(spec.dir.join(mark)).ok();
        }
        keep_logs_on_panic(&spec.dir);
        let mut command = Command::new("sh");
        command
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(&spec.dir)
            .arg(&spec.program)
            .args(&spec.args)
            .env("LOG", &log)
            .current_dir(&spec.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own: Ctrl-C reaches the test, whose end reaches the server through the pipe.
            .process_group(0);
        let mut shell = command.spawn().unwrap_or_else(|error| panic!("cannot start sh for {}: {error}", spec.name));
        let pipe = shell.stdin.take();
        let mut first = String::new();
        let stdout = shell.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut first).expect("sh prints the process id");
        let pid = first.trim().parse().unwrap_or_else(|_| panic!("{} did not start: {first:?}", spec.name));
        Self { name: spec.name, shell, pipe, pid, dir: spec.dir.clone(), log }
    }

    #[cfg(test)]
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// `None` while it runs, else a message with its exit status and the end of its log.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.shell.try_wait().ok().flatten()?;
        let name = self.name;
        Some(format!("{name} ended with {status}; the end of {}:\n{}", self.log.display(), tail(&self.log)))
    }

    /// Sends a signal by name (`STOP`, `CONT`, `KILL`, `TERM`).
    pub(crate) fn signal(&self, signal: &str) {
        // The shell's own `kill`, which needs no unsafe code.
        let sent =
            Command::new("sh").args(["-c", "kill -\"$1\" \"$2\"", "kill", signal, &self.pid.to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{} (pid {}) does not accept {signal}", self.name, self.pid);
    }

    /// Stops it in an orderly way and keeps its directory for the next start.
    pub(crate) fn stop_for_reuse(self) {
        File::create(self.dir.join("reuse")).ok();
    }

    /// Kills it, as a crash would, and keeps its directory for the next start.
    pub(crate) fn kill_for_reuse(mut self) {
        File::create(self.dir.join("reuse")).ok();
        self.signal("KILL");
        self.shell.wait().ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.pipe.take());
        self.shell.wait().ok();
        let wanted = ["keep", "reuse"].iter().any(|mark| self.dir.join(mark).exists());
        if !wanted {
            std::fs::remove_dir_all(&self.dir).ok();
        }
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

/// A new directory with `data/` in it. The watchdog of a process that is started there removes it.
pub(crate) fn scratch_dir(name: &str) -> PathBuf {
    let dir = tempfile::Builder::new()
        .prefix(&format!("signpost-{name}-"))
        .tempdir()
        .unwrap_or_else(|error| panic!("no temporary directory: {error}"))
        .keep();
    std::fs::create_dir(dir.join("data")).expect("the scratch directory is writable");
    dir
}

static SCRATCH_DIRS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// After a panic anywhere in this process, the logs of its servers are kept and their paths printed.
fn keep_logs_on_panic(dir: &Path) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            for dir in SCRATCH_DIRS.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|dir| dir.exists()) {
                File::create(dir.join("keep")).ok();
                eprintln!("server log kept: {}", dir.join("log").display());
            }
        }));
    });
    let mut dirs = SCRATCH_DIRS.lock().unwrap_or_else(PoisonError::into_inner);
    if !dirs.iter().any(|known| known == dir) {
        dirs.push(dir.to_owned());
    }
}

/// The ports that tests use. Below the range that the kernel uses for outgoing connections, so that none of those takes one before the server
/// does.
const PORTS: std::ops::Range<u16> = 15_000..31_960;
/// Ports that a test process takes at once.
const BLOCK: u16 = 40;

/// The ports of this process: each block of them is locked by a file until the process ends.
struct Ports {
    locks: Vec<File>,
    next: std::ops::Range<u16>,
}

static OWN_PORTS: Mutex<Ports> = Mutex::new(Ports { locks: Vec::new(), next: 0..0 });

impl Ports {
    /// Locks a block that no other test process has. A port that was only found to be free could be given to another process before its
    /// server listens on it.
    fn take_block(&mut self) {
        let folder = port_locks();
        std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
        let blocks = (PORTS.end - PORTS.start) / BLOCK;
        let first = rand::random_range(0..blocks);
        for block in (0..blocks).map(|block| (first + block) % blocks) {
            let start = PORTS.start + block * BLOCK;
            let path = folder.join(start.to_string());
            let file = File::create(&path).unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
            if file.try_lock().is_ok() {
                self.locks.push(file);
                self.next = start..start + BLOCK;
                return;
            }
        }
        panic!("every block of ports has a lock in {}", folder.display());
    }
}

/// The folder of the locks, one for all test processes of a user.
fn port_locks() -> PathBuf {
    cache_dir().unwrap_or_else(std::env::temp_dir).join("ports")
}

/// A TCP and UDP port on loopback that is not in use, and that no other call returns while a test process that called it runs.
pub fn free_port() -> u16 {
    let mut ports = OWN_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(port) = ports.next.next() else {
            ports.take_block();
            continue;
        };
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
            && UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if free {
            return port;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually;
    use std::time::Duration;

    fn sleeper(dir: &Path) -> Spec {
        Spec { name: "sleep", program: "sleep".into(), args: vec!["600".into()], dir: dir.to_owned() }
    }

    #[test]
    fn no_port_is_returned_twice() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..BLOCK).map(|_| free_port()).collect::<Vec<_>>())).collect();
        let all: Vec<u16> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert!(all.iter().all(|port| PORTS.contains(port)));
        // The block of a port is locked until the process ends.
        let start = all[0] - (all[0] - PORTS.start) % BLOCK;
        let file = File::open(port_locks().join(start.to_string())).unwrap();
        assert!(file.try_lock().is_err());
    }

    fn runs(pid: u32) -> bool {
        Command::new("sh")
            .args(["-c", "kill -0 \"$1\" 2>/dev/null", "kill", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    }

    #[test]
    fn dropping_a_process_stops_it_and_removes_its_directory() {
        let dir = scratch_dir("drop");
        let process = Process::start(&sleeper(&dir));
        let pid = process.pid();
        assert!(runs(pid));
        drop(process);
        assert!(!runs(pid));
        assert!(!dir.exists());
    }

    #[test]
    fn a_suspended_process_is_stopped_too() {
        let dir = scratch_dir("stopped");
        let process = Process::start(&sleeper(&dir));
        let pid = process.pid();
        process.signal("STOP");
        drop(process);
        assert!(!runs(pid));
    }

    #[test]
    fn a_process_that_fails_to_start_is_reported_with_its_log() {
        let dir = scratch_dir("fails");
        let spec = Spec { program: "ls".into(), args: vec!["/no/such/file".into()], ..sleeper(&dir) };
        let mut process = Process::start(&spec);
        process.shell.wait().unwrap();
        let ended = process.ended().unwrap();
        assert!(ended.contains("/no/such/file"), "{ended}");
        drop(process);
        assert!(!dir.exists());
    }

    #[test]
    fn stopping_for_reuse_keeps_the_data_and_a_panic_keeps_the_log() {
        let dir = scratch_dir("reuse");
        std::fs::write(dir.join("data/kept"), "").unwrap();
        Process::start(&sleeper(&dir)).stop_for_reuse();
        Process::start(&sleeper(&dir)).kill_for_reuse();
        assert!(dir.join("data/kept").exists());
        let process = Process::start(&sleeper(&dir));
        std::fs::write(dir.join("keep"), "").unwrap();
        drop(process);
        assert!(!dir.join("data").exists());
        assert!(dir.join("log").exists());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn closing_the_pipe_stops_the_process() {
        let dir = scratch_dir("pipe");
        let mut process = Process::start(&sleeper(&dir));
        let pid = process.pid();
        drop(process.pipe.take());
        std::mem::forget(process);
        eventually("the process has ended and its directory is removed", Duration::from_secs(30), || async {
            if runs(pid) || dir.exists() { Err("still there") } else { Ok(()) }
        })
        .await;
    }
}
