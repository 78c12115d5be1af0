package fleet

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
)

// Names has the names of everything that a fleet stores in NATS. A name of a stream or bucket
// contains the name of the fleet, which has only small letters, digits and hyphens.
type Names struct{ fleet string }

// NamesOf returns the names of a fleet.
func NamesOf(fleet string) Names { return Names{fleet} }

// Fleet returns the name of the fleet.
func (n Names) Fleet() string { return n.fleet }

// Work is the stream of the deltas for workers.
func (n Names) Work() string { return "DR_" + n.fleet + "_WORK" }

// DeadLetters is the stream of the dead letters of workers.
func (n Names) DeadLetters() string { return "DR_" + n.fleet + "_DLQ" }

// Cuts is the stream of the frames of the leader's state file.
func (n Names) Cuts() string { return "DR_" + n.fleet + "_CUTS" }

// Owners is the KV bucket of the owners of partitions.
func (n Names) Owners() string { return "dr_" + n.fleet + "_own" }

// Members is the KV bucket of the members and workers. Its values expire after [MemberTTL].
func (n Names) Members() string { return "dr_" + n.fleet + "_members" }

// Values is the KV bucket of the kv of handlers on workers.
func (n Names) Values() string { return "dr_" + n.fleet + "_kv" }

// Snapshots is the bucket of the Object Store with the snapshots of the leader's state file.
func (n Names) Snapshots() string { return "dr_" + n.fleet + "_snap" }

// Lease is the name of the Kubernetes Lease by which members elect their leader.
func (n Names) Lease() string { return "deltarouter-" + n.fleet }

// The subjects. Those of one stream do not overlap with another.

// WorkSubject is the subject of a delta in the stream [Names.Work]. route is the id of the route,
// and key the order key.
func (n Names) WorkSubject(route string, generation uint64, partition int, key string) string {
	return n.partition(route, generation, partition) + "." + Token(key)
}

// WorkFilter matches the subjects of one partition.
func (n Names) WorkFilter(route string, generation uint64, partition int) string {
	return n.partition(route, generation, partition) + ".*"
}

// WorkGeneration matches the subjects of all partitions of a generation. token is the [Token] of
// the id of the route.
func (n Names) WorkGeneration(token string, generation uint64) string {
	return n.subject("w", token, fmt.Sprint(generation), ">")
}

// WorkRoute matches the subjects of all generations and partitions of a route.
func (n Names) WorkRoute(route string) string { return n.subject("w", Token(route), ">") }

func (n Names) partition(route string, generation uint64, partition int) string {
	return n.subject("w", Token(route), fmt.Sprint(generation), fmt.Sprint(partition))
}

// ParseWork returns the generation and the partition of a subject of [Names.WorkSubject].
func ParseWork(subject string) (generation uint64, partition int, ok bool) {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 7 {
		return 0, 0, false
	}
	generation, err := strconv.ParseUint(tokens[4], 10, 64)
	if err != nil {
		return 0, 0, false
	}
	partition, err = strconv.Atoi(tokens[5])
	return generation, partition, err == nil
}

// WorkLists is the number of subjects of [WorkList].
const WorkLists = 2048

// WorkList is the subject of the list of the events in a batch of the stream [Names.Work].
func WorkList(n Names, batch uint64) string {
	return n.subject("w", "list", fmt.Sprint(batch%WorkLists))
}

// WorkListFilter matches the subjects of all lists.
func WorkListFilter(n Names) string { return n.subject("w", "list", "*") }

// WorkLead is the subject of the lead record in the stream [Names.Work].
func (n Names) WorkLead() string { return n.subject("w", "lead") }

// Frame is a subject of frames in the stream [Names.Cuts]. token has no dots.
func (n Names) Frame(token string) string { return n.subject("c", "f", token) }

// Frames matches the subjects of all frames.
func (n Names) Frames() string { return n.subject("c", "f", ">") }

// CutsLead is the subject of the lead record in the stream [Names.Cuts].
func (n Names) CutsLead() string { return n.subject("c", "lead") }

// DeadLetter is the subject of the dead letters of a route in the stream [Names.DeadLetters].
func (n Names) DeadLetter(route string) string { return n.subject("d", Token(route)) }

// Lookup is the subject of the look-ups, which the leader answers.
func (n Names) Lookup() string { return n.subject("q", "lookup") }

// SnapshotRequest is the subject of the requests of standbys for a snapshot.
func (n Names) SnapshotRequest() string { return n.subject("q", "snapshot") }

// Inbox is the prefix of the subjects of answers to a process. Those of members are apart from
// those of workers, which may neither read nor forge them.
func (n Names) Inbox(role Role) string { return "_INBOX.dr-" + n.fleet + "." + string(role) }

// IsInbox reports whether the leader may send the answer to a worker to a subject. JetStream and
// clients accept any subject for answers, and the leader may publish where a worker may not.
// Workers of a former version have inboxes without the role.
func IsInbox(n Names, reply string) bool {
	return strings.HasPrefix(reply, n.Inbox("")) && !strings.HasPrefix(reply, n.Inbox(Member)+".") && !strings.ContainsAny(reply, "*> \t\r\n")
}

// Consumer is the name of the consumer of a partition in one epoch.
func (n Names) Consumer(route string, generation uint64, partition int, epoch uint64) string {
	return n.ConsumerPrefix(route, generation, partition) + strconv.FormatUint(epoch, 10)
}

// ConsumerPrefix is the part of [Names.Consumer] before the epoch.
func (n Names) ConsumerPrefix(route string, generation uint64, partition int) string {
	return fmt.Sprintf("w_%s_%d_%d_", Token(route), generation, partition)
}

// Owner is the key of a partition in the bucket [Names.Owners].
func (n Names) Owner(route string, generation uint64, partition int) string {
	return fmt.Sprintf("%s.%d.%d", Token(route), generation, partition)
}

func (n Names) subject(tokens ...string) string {
	return "dr." + n.fleet + "." + strings.Join(tokens, ".")
}

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Token returns a token of a subject for any text: 16 letters and digits. It is a hash, so
// different texts have different tokens in practice.
func Token(text string) string {
	sum := sha256.Sum256([]byte(text))
	return encoding.EncodeToString(sum[:10])
}
