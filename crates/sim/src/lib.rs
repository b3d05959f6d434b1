//! Driver 2: the same mind in a model world under a virtual clock.
