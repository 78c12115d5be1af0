// Package replica keeps the state files of the standbys of a fleet equal to that of the leader.
//
//	leader's file ─frames─► Shipper ─batches─► stream CUTS ─────► Follower ─frames─► standby's file
//	              ─copy───►         ─────────► Object Store ────►
//
// The [Shipper] publishes the frames of the leader's state file to the stream CUTS, and from time
// to time a snapshot: a copy of the file. The [Follower] of a standby begins with a snapshot,
// unless its file continues in the stream, and applies the frames.
//
// # Numbers
//
// The numbers of frames are contiguous, see internal/checkpoint. A follower applies a frame only if
// it follows on its own last one in the same term, so it notices frames that are missing in the
// stream, and a file with frames of a deposed leader that nobody else has. Then it takes the
// snapshot. If the snapshot is not new enough, the follower asks the leader for another one.
//
// # The valid snapshot
//
// Nothing fences the Object Store: a deposed leader may still write there. So the lead record of
// the stream, which only the present leader can write, points to the valid snapshot, with its size
// and digest. The record follows all frames that the snapshot contains. The leader keeps the
// snapshot before it, too, and the frames since that one: a follower that reads a snapshot while
// the next one is made can continue.
//
// # Memory
//
// Frames that cannot be published wait in memory, up to a bound. Beyond it they are given up and
// the leader makes a snapshot, so the leader never waits for NATS.
package replica
