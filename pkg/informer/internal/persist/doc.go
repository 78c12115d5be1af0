// Package persist keeps the state of one watch, in the parts that a checkpoint saves and a restart
// loads: the objects, the resourceVersion up to which changes are applied, the objects that are not
// saved yet (the dirty set), and the intents.
//
// [State] guards all of them by one lock, the cut lock, so that they agree with each other whenever
// it is free. The backlogs of the routes agree with them as well, because [State.Apply] commits the
// deltas under the same lock. A [Loader] restores objects while the watch runs already.
package persist
