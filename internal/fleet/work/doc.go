// Package work contains the messages by which the leader passes the deltas of routes with workers
// to these workers, and the sink that publishes them.
package work
