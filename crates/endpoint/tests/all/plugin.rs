//! Plug-ins: the reference ones pass the suite, and misbehaving ones are told apart and survived.

mod misbehaviour;
mod reference;
