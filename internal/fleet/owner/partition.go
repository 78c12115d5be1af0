// Package owner decides which worker of a fleet handles which partition of a route. A partition is
// owned by a lease in a KV bucket of JetStream:
//
//   - The value of its key names the owner, which updates it by revision each tenth of the TTL. The
//     owner counts itself the owner until 0.6 TTL after the time at which a confirmed update was
//     sent, by its own clock. Then it begins no call, and at 0.8 TTL it cancels those that run.
//   - Another worker takes the key when its revision has stood still for the TTL on that worker's
//     clock, or when the owner has freed it after it had handled all that it had in hand.
//   - The revision of the taking is the epoch: it rises with each owner, so the traces of earlier
//     owners are told from those of the present one.
//
// So two workers never act in the same epoch, and a worker that was paused stops by itself before
// another one begins, without any message.
//
// Which worker should own a partition follows from the members that are alive, by rendezvous
// hashing: a change of their number moves only the partitions that must move.
package owner

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Partition is a part of the messages of a route: those of some keys.
type Partition struct {
	Route      string // the token of the route in subjects
	Generation uint64 // counts the changes of the number of partitions
	Number     int
}

// String returns the key of the partition in the bucket: <route>.<generation>.<number>.
func (p Partition) String() string { return fmt.Sprintf("%s.%d.%d", p.Route, p.Generation, p.Number) }

// parsePartition is the inverse of [Partition.String]. ok is false for the key of a route.
func parsePartition(key string) (p Partition, ok bool) {
	parts := strings.Split(key, ".")
	if len(parts) != 3 {
		return p, false
	}
	generation, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return p, false
	}
	number, err := strconv.Atoi(parts[2])
	if err != nil || number < 0 {
		return p, false
	}
	return Partition{parts[0], generation, number}, true
}

// value is the value of a partition in the bucket.
type value struct {
	Worker string `json:"worker,omitempty"` // the process that owns it; empty: it is free
	Trail
}

// free reports whether the last owner has handed the partition over.
func (v *value) free() bool { return v.Worker == "" }

// Trail has the notes of the owners of a partition for the next one, about messages that may end a
// worker.
type Trail struct {
	// Unclean counts the owners in a row that ended without a hand-over and without progress.
	Unclean int `json:"unclean,omitempty"`
	// Handling is the stream sequence of the message that the owner handled alone; 0: none.
	Handling uint64 `json:"handling,omitempty"`
}

func (v *value) encode() []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return nil // never: it has strings and numbers only
	}
	return data
}

func decode(data []byte) (v value, err error) {
	if len(data) == 0 {
		return v, nil
	}
	err = json.Unmarshal(data, &v)
	return v, err
}

// after returns the trail for a worker that takes the partition from v.
func (v *value) after(worker string) Trail {
	switch v.Worker {
	case "":
		return v.Trail
	case worker: // it lost the lease, and is alive
		return Trail{Unclean: v.Unclean}
	default:
		return Trail{Unclean: v.Unclean + 1, Handling: v.Handling}
	}
}
