//! aether and init on the real kernel, over the edge's wire.

mod commands;
mod misbehaviour;
mod output;
mod sessions;
mod support;
