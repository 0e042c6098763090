//! The real kubectl against the served sandbox and the real API server: its output and exit codes must be the same.
//!
//! Each scenario is a list of command lines. It runs on both servers. Values that differ from run to run (UIDs, ages, versions) are masked;
//! all else is compared.

// A test reports a failed step by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::borrow::Cow;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use signpost_testkit::{Binary, Cluster, Lines, eventually, find_binary, real_cluster, sandbox_cluster, skip};
use tokio::sync::OnceCell;

/// One command line and its stdin.
#[derive(Clone, Debug)]
struct Step {
    line: &'static str,
    stdin: Cow<'static, str>,
    /// Whether only success or failure is compared, because the text may differ.
    only_outcome: bool,
}

/// The result of a command, masked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn step(line: &'static str) -> Step {
    Step { line, stdin: "".into(), only_outcome: false }
}

fn given(line: &'static str, stdin: &'static str) -> Step {
    Step { stdin: stdin.into(), ..step(line) }
}

/// Creates a namespace in JSON; `create namespace` uses protobuf and has its own scenario.
fn namespace(name: &str) -> Step {
    let manifest = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}");
    Step { stdin: manifest.into(), ..step("apply -f -") }
}

/// A kubectl for one server, with its own cache directory.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
}

impl Kubectl {
    fn new(program: PathBuf, cluster: &Cluster) -> Self {
        Self { program, kubeconfig: cluster.kubeconfig(), home: tempfile::tempdir().unwrap() }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words(line)).env("KUBECONFIG", &self.kubeconfig).env("HOME", self.home.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &str, stdin: &str) -> Outcome {
        let mut child = self.command(line).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
        let output = child.wait_with_output().unwrap();
        Outcome {
            code: output.status.code(),
            stdout: mask(&String::from_utf8_lossy(&output.stdout)),
            stderr: mask(&String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// Splits at spaces; single quotes group words.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Replaces the values that differ from run to run.
fn mask(text: &str) -> String {
    static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
            (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000", "TIME"),
            (r#"(resourceVersion"?:? ?)"?\d+"?"#, "${1}N"),
            (r"\b10\.96\.\d+\.\d+\b", "ADDRESS"),
            (r"https?://127\.0\.0\.1:\d+", "SERVER"),
            (r"\b(\d+[smhd])+( ago)?\b", "AGE"),
            (r"(Resource Version: +)\d+", "${1}N"),
            // Column widths depend on the masked values; indentation does not.
            (r"(\S)[ \t]+", "$1 "),
        ]
        .map(|(pattern, mask)| (Regex::new(pattern).unwrap(), mask))
        .into()
    });
    let mut masked = text.to_owned();
    for (pattern, mask) in MASKS.iter() {
        masked = pattern.replace_all(&masked, *mask).into_owned();
    }
    masked.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Both servers, with the suite's CRD in them; `None` after reporting a skip.
async fn both() -> Option<(Kubectl, Kubectl, Cluster)> {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let Some(program) = find_binary(Binary::Kubectl) else {
        skip("kubectl", "kubectl is not installed; run dev/setup kube to get it");
        return None;
    };
    let real = real_cluster().await?;
    let sandbox = sandbox_cluster().await;
    let crds = [serde_saphyr::from_str(CRD).unwrap()];
    sandbox.install(&crds).await;
    let install = || async {
        real.install(&crds).await;
        // kubectl explain and validation read OpenAPI, which the server publishes shortly after the CRD.
        let kubectl = Kubectl::new(program.clone(), &real);
        eventually("the CRD is in OpenAPI", Duration::from_mins(1), || async {
            let outcome = kubectl.run("explain gizmos.spec.size", "");
            if outcome.code == Some(0) { Ok(()) } else { Err(outcome) }
        })
        .await;
    };
    INSTALLED.get_or_init(install).await;
    let kubectl = |cluster| Kubectl::new(program.clone(), cluster);
    Some((kubectl(&sandbox), kubectl(&real), sandbox))
}

/// Runs the scenario on both servers and compares step by step.
async fn compare(steps: Vec<Step>) {
    let Some((sandbox, real, _keep)) = both().await else { return };
    let transcript = tokio::task::spawn_blocking(move || {
        let mut differences = Vec::new();
        for step in &steps {
            let expected = real.run(step.line, &step.stdin);
            let got = sandbox.run(step.line, &step.stdin);
            let same = if step.only_outcome { expected.code == got.code } else { expected == got };
            if !same {
                differences.push(report(step, &expected, &got));
            }
        }
        (steps.len(), differences)
    });
    let (count, differences) = transcript.await.unwrap();
    assert!(differences.is_empty(), "{} of {count} commands differ\n\n{}", differences.len(), differences.join("\n"));
}

fn report(step: &Step, expected: &Outcome, got: &Outcome) -> String {
    let show = |outcome: &Outcome| {
        let Outcome { code, stdout, stderr } = outcome;
        format!("exit {code:?}\n{stdout}\n{stderr}").replace('\n', "\n    ")
    };
    let stdin = step.stdin.replace('\n', "\n    ");
    format!("$ kubectl {}\n    {stdin}\n  real: {}\n  sandbox: {}\n", step.line, show(expected), show(got))
}

const CRD: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.kubectl.signpost.dev}
spec:
  group: kubectl.signpost.dev
  scope: Namespaced
  names: {plural: gizmos, singular: gizmo, kind: Gizmo, shortNames: [gz], categories: [toys]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Note, type: string, jsonPath: .spec.note, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A gizmo is for testing kubectl.
        required: [spec]
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [size]
            x-kubernetes-validations:
            - {rule: "self.size != 13", message: thirteen is not a size}
            properties:
              size: {type: integer, minimum: 0, maximum: 100, description: How big it is.}
              color: {type: string, enum: [red, green], default: red, description: What it looks like.}
              note: {type: string}
              steps: {type: array, description: What to do., items: {type: string}}
          status:
            type: object
            properties:
              conditions:
                type: array
                items:
                  type: object
                  required: [type, status]
                  properties: {type: {type: string}, status: {type: string}}
"#;

const GIZMO: &str = r"
apiVersion: kubectl.signpost.dev/v1
kind: Gizmo
metadata: {name: one, labels: {app: x}}
spec: {size: 3, note: hello, steps: [a, b]}
";

const BUILT_IN: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: '1', b: '2'}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {key: value}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: site}
spec:
  ingressClassName: nginx
  rules:
  - host: a.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_created_shown_changed_and_deleted() {
    compare(vec![
        namespace("crud"),
        given("-n crud apply -f -", GIZMO),
        given("-n crud apply -f -", GIZMO),
        step("-n crud get gizmos"),
        step("-n crud get gz one -o wide"),
        step("-n crud get gizmo one -o yaml"),
        step("-n crud get gizmo one -o json"),
        step("-n crud get gizmo one -o yaml --show-managed-fields"),
        step("-n crud get gizmos -o name"),
        step("-n crud get gizmos --show-labels"),
        step("-n crud get toys"),
        step("get gizmos -A -l app=x --field-selector metadata.namespace=crud"),
        step("-n crud get gizmo one -o jsonpath={.spec.size}"),
        step("-n crud get gizmo one -o custom-columns=NAME:.metadata.name,SIZE:.spec.size"),
        step("-n crud get gizmos --sort-by=.spec.size"),
        step("-n crud label gizmo one tier=front"),
        step("-n crud label gizmo one tier=back"),
        step("-n crud label gizmo one tier=back --overwrite"),
        step("-n crud label gizmo one tier-"),
        step("-n crud annotate gizmo one example.com/a=b"),
        step("-n crud patch gizmo one --type=merge -p '{\"spec\":{\"size\":4}}'"),
        step("-n crud patch gizmo one --type=merge -p '{\"spec\":{\"size\":4}}'"),
        step("-n crud patch gizmo one --type=json -p '[{\"op\":\"replace\",\"path\":\"/spec/size\",\"value\":5}]'"),
        step("-n crud patch gizmo one --subresource=status --type=merge -p '{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}'"),
        step("-n crud get gizmos"),
        given("-n crud apply -f -", "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: one}, spec: {size: 3}}"),
        step("-n crud get gizmo one -o yaml"),
        given("-n crud diff -f -", "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: one}, spec: {size: 3}}"),
        given("-n crud replace -f -", "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: one}, spec: {size: 9}}"),
        given("-n crud create -f -", GIZMO),
        given("-n crud apply --dry-run=server -f -", GIZMO),
        given("-n crud apply --dry-run=client -f -", GIZMO),
        step("-n crud delete gizmo one"),
        step("-n crud get gizmo one"),
        step("-n crud get gizmos"),
        step("-n crud delete gizmo one"),
        step("-n crud delete gizmo one --ignore-not-found"),
        step("delete namespace crud"),
        step("get namespace crud"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_kinds_are_created_and_shown() {
    compare(vec![
        namespace("builtin"),
        given("-n builtin create -f -", BUILT_IN),
        given("-n builtin apply -f -", BUILT_IN),
        step("-n builtin get configmaps"),
        step("-n builtin get secrets"),
        step("-n builtin get services"),
        step("-n builtin get ingress"),
        step("-n builtin get ingress site -o yaml"),
        step("-n builtin get cm,svc,ing -o name"),
        step("-n builtin patch service web -p '{\"spec\":{\"ports\":[{\"port\":80,\"targetPort\":9090}]}}'"),
        step("-n builtin get service web -o jsonpath={.spec.ports[0].targetPort}"),
        step("-n builtin patch configmap settings -p '{\"data\":{\"b\":null,\"c\":\"3\"}}'"),
        step("-n builtin get configmap settings -o jsonpath={.data}"),
        step("-n builtin delete ingress,configmap,service --all"),
        step("-n builtin delete secret hidden"),
        step("get namespaces default kube-system"),
        step("delete namespace builtin"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_commands_use_protobuf_and_succeed() {
    compare(vec![
        step("create namespace typed"),
        step("create namespace typed"),
        step("-n typed create configmap settings --from-literal=a=1 --from-literal=b=2"),
        step("-n typed create secret generic hidden --from-literal=key=value"),
        step("-n typed create service clusterip web --tcp=80:8080"),
        step("-n typed create service loadbalancer lb --tcp=443:8443"),
        step("-n typed create service externalname out --external-name=example.com"),
        step("-n typed create ingress site --rule=a.example.com/*=web:80,tls=cert --class=nginx --annotation=example.com/a=b"),
        step("-n typed get configmap settings -o yaml"),
        step("-n typed get secret hidden -o yaml"),
        step("-n typed get service web -o yaml"),
        step("-n typed get service out -o yaml"),
        step("-n typed get ingress site -o yaml"),
        step("-n typed create configmap settings"),
        step("auth can-i create gizmos"),
        step("auth can-i '*' '*'"),
        step("-n no-such-namespace create configmap a"),
        step("delete namespace typed"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_described() {
    compare(vec![
        namespace("described"),
        given("-n described apply -f -", GIZMO),
        given("-n described apply -f -", BUILT_IN),
        step("-n described describe gizmo one"),
        step("-n described describe configmap settings"),
        step("-n described describe ingress site"),
        step("-n described describe service web"),
        step("-n described describe secret hidden"),
        step("describe namespace described"),
        given(
            "-n described create -f -",
            "{apiVersion: v1, kind: Event, metadata: {name: e, namespace: described}, reason: Tested, message: It was tested., type: Warning, count: 2, firstTimestamp: '2026-01-02T03:04:05Z', lastTimestamp: '2026-01-02T03:04:05Z', source: {component: signpost}, involvedObject: {apiVersion: v1, kind: ConfigMap, name: settings, namespace: described}}",
        ),
        step("-n described describe configmap settings"),
        Step { only_outcome: true, ..step("-n described get events") },
        step("-n described get events -o custom-columns=REASON:.reason,NOTE:.message"),
        step("-n described describe gizmo missing"),
        step("delete namespace described"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_are_explained_and_listed() {
    compare(vec![
        step("explain gizmos"),
        step("explain gizmos.spec"),
        step("explain gizmo.spec.size"),
        step("explain gizmo.spec.steps"),
        step("explain gizmo.spec.nope"),
        step("explain nonsense"),
        step("api-resources --api-group=kubectl.signpost.dev"),
        step("api-resources --api-group=kubectl.signpost.dev -o wide"),
        step("get --raw /readyz"),
        Step { only_outcome: true, ..step("explain ingress.spec.rules") },
        Step { only_outcome: true, ..step("api-resources") },
        Step { only_outcome: true, ..step("api-versions") },
        Step { only_outcome: true, ..step("version") },
        Step { only_outcome: true, ..step("cluster-info") },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_wait_returns_when_the_condition_is_met() {
    compare(vec![
        namespace("waited"),
        given("-n waited apply -f -", GIZMO),
        step("-n waited wait gizmo one --for=condition=Ready --timeout=5s"),
        step("-n waited patch gizmo one --subresource=status --type=merge -p '{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}'"),
        step("-n waited wait gizmo one --for=condition=Ready --timeout=60s"),
        step("-n waited wait gizmo one --for=jsonpath={.spec.size}=3 --timeout=60s"),
        step("-n waited wait gizmo missing --for=condition=Ready --timeout=5s"),
        step("-n waited delete gizmo one --wait=false"),
        step("-n waited wait gizmo one --for=delete --timeout=60s"),
        step("wait --for=condition=Established crd/gizmos.kubectl.signpost.dev --timeout=60s"),
        step("delete namespace waited"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_and_its_conflicts_print_the_same() {
    compare(vec![
        namespace("ssa"),
        given("-n ssa apply --server-side --field-manager=one -f -", GIZMO),
        given(
            "-n ssa apply --server-side --field-manager=two -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: one}, spec: {size: 4, note: other}}",
        ),
        given(
            "-n ssa apply --server-side --field-manager=two --force-conflicts -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: one}, spec: {size: 4, note: other}}",
        ),
        step("-n ssa get gizmo one -o yaml --show-managed-fields"),
        given("-n ssa apply -f -", GIZMO),
        step("delete namespace ssa"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_same_messages() {
    compare(vec![
        namespace("mistakes"),
        given("-n mistakes apply -f -", "this: is: not: yaml"),
        given("-n mistakes apply -f -", "just words"),
        given("-n mistakes apply -f -", "{apiVersion: v1, kind: ConfigMap}"),
        given("-n mistakes apply -f -", "{apiVersion: kubectl.signpost.dev/v1, kind: Nonsense, metadata: {name: a}}"),
        given("-n mistakes apply -f -", "{apiVersion: kubectl.signpost.dev/v9, kind: Gizmo, metadata: {name: a}}"),
        given(
            "-n mistakes apply -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: a}, spec: {}}",
        ),
        given(
            "-n mistakes apply -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: a}, spec: {size: 101}}",
        ),
        given(
            "-n mistakes apply -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: a}, spec: {size: big}}",
        ),
        given(
            "-n mistakes apply -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: a}, spec: {size: 13}}",
        ),
        given(
            "-n mistakes apply -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: a}, spec: {size: 1, color: pink}}",
        ),
        given(
            "-n mistakes apply -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: a}, spec: {size: 1, nope: 1}}",
        ),
        given(
            "-n mistakes apply -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: Bad_Name}, spec: {size: 1}}",
        ),
        given(
            "-n mistakes apply --validate=false -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: a}, spec: {size: 1, nope: 1}}",
        ),
        given(
            "-n mistakes apply --validate=warn -f -",
            "{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {name: b}, spec: {size: 1, nope: 1}}",
        ),
        step("-n mistakes get nonsense"),
        step("-n mistakes get configmap missing"),
        step("-n mistakes patch gizmo a --type=merge -p '{\"spec\":'"),
        step("-n mistakes patch gizmo a --type=strategic -p '{\"spec\":{\"size\":2}}'"),
        step("-n mistakes get gizmos --field-selector=spec.size=1"),
        step("-n mistakes get gizmos -l 'a in x'"),
        given("-n no-such-namespace apply -f -", GIZMO),
        step("delete namespace default"),
        step("delete namespace mistakes"),
    ])
    .await;
}

/// The first lines that `kubectl get -w` prints while an object is created, changed and deleted.
fn watch_lines(kubectl: &Kubectl, namespace: &str) -> Vec<String> {
    let manifest = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}");
    assert_eq!(kubectl.run("apply -f -", &manifest).code, Some(0));
    let apply = |size: u32| {
        let gizmo = format!(
            "{{apiVersion: kubectl.signpost.dev/v1, kind: Gizmo, metadata: {{name: one}}, spec: {{size: {size}}}}}"
        );
        let outcome = kubectl.run(&format!("-n {namespace} apply -f -"), &gizmo);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    };
    apply(1);
    let mut watch = kubectl.command(&format!("-n {namespace} get gizmos -w --output-watch-events")).spawn().unwrap();
    let lines = Lines::of(watch.stdout.take().unwrap());
    let take = |count: usize| -> Vec<String> {
        (0..count).map(|_| mask(&lines.next(Duration::from_mins(1)).expect("kubectl keeps watching"))).collect()
    };
    let mut seen = take(2); // the header and what is there
    apply(2);
    seen.extend(take(1));
    kubectl.run(&format!("-n {namespace} delete gizmo one"), "");
    seen.extend(take(1));
    watch.kill().unwrap();
    watch.wait().unwrap();
    kubectl.run(&format!("delete namespace {namespace}"), "");
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_prints_changes_as_they_happen() {
    let Some((sandbox, real, _keep)) = both().await else { return };
    let (expected, got) =
        tokio::task::spawn_blocking(move || (watch_lines(&real, "watched"), watch_lines(&sandbox, "watched")))
            .await
            .unwrap();
    assert_eq!(expected.len(), 4, "{expected:?}");
    assert!(expected[3].starts_with("DELETED one"), "{expected:?}");
    assert_eq!(got, expected);
}

#[test]
fn only_values_that_differ_from_run_to_run_are_masked() {
    assert_eq!(mask("NAME   AGE\na      2m3s\nb 5d  "), "NAME AGE\na AGE\nb AGE");
    assert_eq!(
        mask("resourceVersion: \"123\" uid: 6f1c1f5e-0000-1111-2222-333344445555"),
        "resourceVersion: N uid: UID"
    );
    assert_eq!(mask("size: 3, port 80/TCP"), "size: 3, port 80/TCP");
    assert_eq!(words("patch a -p '{\"b\": 1}'"), ["patch", "a", "-p", "{\"b\": 1}"]);
}
