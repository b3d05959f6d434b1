//! Driver 1: the mind with a real clock and the real world.
