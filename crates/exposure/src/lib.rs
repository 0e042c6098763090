//! The exposed parts of an Ingress, as plain data.
//!
//! ```text
//!  host + base domains (or public suffix list) ─► split    ─► domain, subdomain
//!  paths with Kubernetes semantics             ─► routes   ─► rules with priorities, for a proxy that knows neither
//!  annotations                                 ─► Options  ─► settings and problems, a typing error with its nearest match
//!  class, annotation, mapping                  ─► decide   ─► whose Ingress it is, and through which tunnel
//!  namespace, name, host                       ─► names    ─► the same names at every start
//! ```
//! Pure: no I/O, no clock, no environment. All text is hostile: every function is total and refuses with a message that a user can act on.

mod annotations;
mod class;
mod host;
mod mapping;
mod names;
mod paths;

pub use annotations::{
    Annotations, BackendScheme, Check, Options, PREFIX, Problem as AnnotationProblem, parse as parse_annotations,
};
pub use class::{Class, ClassRules, decide as decide_class};
pub use host::{BaseDomain, HostError, HostPolicy, Overrides, Shape, Split, SplitSource, normalise, split};
pub use mapping::{MappingError, TunnelAllowance, TunnelMapping};
pub use names::{Names, cut_label, hex};
pub use paths::{Backend, Matching, PathProblem, PathRule, PathType, Route, Routes, kubernetes_answer, routes};
