//! Plug-ins: the reference ones pass the suite, and misbehaving ones are diagnosed and survived.

mod misbehaviour;
mod reference;
