package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// MemberTTL is the time after which the entry of a member that does not repeat it expires.
	MemberTTL = 30 * time.Second

	maxDeadLetters   = 10_000 // per route
	maxDeadLetterAge = 30 * 24 * time.Hour

	// maxWork bounds the deltas that wait for workers in NATS: all further ones wait on the disk of
	// the leader. Without a bound they could fill the storage of the servers, and then workers cannot
	// renew their leases on partitions, so nothing would ever be taken out.
	maxWork = 256 << 20

	// duplicateWindow is the time during which the stream of the work knows ids of messages.
	duplicateWindow = 2 * time.Minute
)

// streams returns the settings of all streams. A bucket is a stream, too.
func (c *Conn) streams() []jetstream.StreamConfig {
	n := c.Names
	work := c.stream(n.Work(), "deltas for workers", n.subject("w", ">"))
	work.MaxBytes = maxWork
	work.Retention, work.AllowAtomicPublish, work.AllowRollup, work.Duplicates = jetstream.WorkQueuePolicy, true, true, duplicateWindow
	cuts := c.stream(n.Cuts(), "frames of the state of the leader", n.subject("c", ">"))
	cuts.AllowAtomicPublish, cuts.AllowRollup = true, true
	letters := c.stream(n.DeadLetters(), "dead letters of workers", n.subject("d", ">"))
	letters.Discard, letters.MaxMsgsPerSubject, letters.MaxAge = jetstream.DiscardOld, maxDeadLetters, maxDeadLetterAge
	values := c.bucket(n.Values(), "kv of handlers on workers", 0)
	values.AllowAtomicPublish, values.AllowMsgTTL = true, true
	return []jetstream.StreamConfig{
		work, cuts, letters, values,
		c.bucket(n.Owners(), "owners of partitions", 0),
		c.bucket(n.Members(), "members and workers", MemberTTL),
		c.objects(n.Snapshots(), "snapshots of the state of the leader"),
	}
}

// stream returns the common settings of a stream.
func (c *Conn) stream(name, description string, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Description: "deltarouter: " + description, Subjects: subjects, Replicas: c.replicas, Storage: jetstream.FileStorage,
		Discard: jetstream.DiscardNew, Compression: jetstream.S2Compression, AllowDirect: true, MaxBytes: -1, MaxMsgs: -1, MaxConsumers: -1,
	}
}

// bucket returns the settings of a KV bucket, as nats.go makes them.
func (c *Conn) bucket(name, description string, ttl time.Duration) jetstream.StreamConfig {
	s := c.stream("KV_"+name, description, "$KV."+name+".>")
	s.MaxMsgsPerSubject, s.MaxAge, s.AllowRollup, s.DenyDelete = 1, ttl, true, true
	return s
}

// objects returns the settings of a bucket of the Object Store, as nats.go makes them.
func (c *Conn) objects(name, description string) jetstream.StreamConfig {
	s := c.stream("OBJ_"+name, description, "$O."+name+".C.>", "$O."+name+".M.>")
	s.AllowRollup = true
	return s
}

// Ensure makes the missing streams and buckets. It changes no existing one: if one has settings
// that the fleet cannot work with, the error lists the differences. The leader calls it.
func (c *Conn) Ensure(ctx context.Context) error {
	if err := c.Supported(); err != nil {
		return err
	}
	for _, want := range c.streams() {
		have, err := c.JS.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			have, err = c.JS.CreateStream(ctx, want)
		}
		if e, ok := errors.AsType[*jetstream.APIError](err); ok {
			return fmt.Errorf("stream %s: %s", want.Name, Explain(int(e.ErrorCode), e.Description))
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", want.Name, err)
		}
		fatal, other := split(differences(want, have.CachedInfo().Config))
		if len(other) > 0 {
			c.log.Warn("fleet: a stream has other settings than the configuration", "differences", describe(want.Name, other))
		}
		if len(fatal) > 0 {
			return fmt.Errorf("%s; %s", describe(want.Name, fatal), remedy)
		}
	}
	return nil
}

// remedy follows the description of a difference.
const remedy = "the router does not change an existing stream: change it with the nats tool, or remove it"

// split separates the differences that the fleet cannot work with.
func split(found []difference) (fatal, other []difference) {
	for _, d := range found {
		if d.fatal {
			fatal = append(fatal, d)
		} else {
			other = append(other, d)
		}
	}
	return fatal, other
}

// difference is a setting of a stream that differs.
type difference struct {
	setting    string
	have, want any
	fatal      bool // the fleet loses data or does not work
}

// describe returns the differences of one stream as a line.
func describe(stream string, found []difference) string {
	var parts []string
	for _, d := range found {
		parts = append(parts, fmt.Sprintf("%s is %v in place of %v", d.setting, d.have, d.want))
	}
	return "stream " + stream + ": " + strings.Join(parts, ", ")
}

// differences compares the settings that matter. An operator may choose the others, such as the
// compression and the placement, and a limit of a stream that then refuses new messages.
func differences(want, have jetstream.StreamConfig) (found []difference) {
	compare := func(setting string, have, want any, same, fatal bool) {
		if !same {
			found = append(found, difference{setting, have, want, fatal})
		}
	}
	slices.Sort(have.Subjects)
	slices.Sort(want.Subjects)
	// Fatal is a setting with which messages are lost, changed or refused.
	compare("subjects", have.Subjects, want.Subjects, slices.Equal(have.Subjects, want.Subjects), true)
	compare("retention", have.Retention, want.Retention, have.Retention == want.Retention, true)
	compare("discard", have.Discard, want.Discard, have.Discard == want.Discard || have.MaxBytes <= 0 && have.MaxMsgs <= 0, true)
	compare("max_msgs_per_subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject, max(have.MaxMsgsPerSubject, 0) == want.MaxMsgsPerSubject, want.Discard == jetstream.DiscardNew)
	compare("max_age", have.MaxAge, want.MaxAge, have.MaxAge == want.MaxAge, want.Discard == jetstream.DiscardNew)
	// Of these, allow_atomic may also be on where it is not needed.
	for _, b := range []struct {
		setting    string
		have, want bool
	}{
		{"allow_atomic", have.AllowAtomicPublish, want.AllowAtomicPublish},
		{"allow_msg_ttl", have.AllowMsgTTL || !want.AllowMsgTTL, true},
		{"allow_rollup_hdrs", have.AllowRollup, want.AllowRollup},
		{"allow_direct", have.AllowDirect, want.AllowDirect},
		{"deny_purge", have.DenyPurge, want.DenyPurge},
		{"deny_delete", have.DenyDelete, want.DenyDelete},
		{"sealed", have.Sealed, false},
		{"no_ack", have.NoAck, false},
		{"mirror", have.Mirror != nil, false},
		{"sources", len(have.Sources) > 0, false},
		{"subject_transform", have.SubjectTransform != nil, false},
	} {
		compare(b.setting, b.have, b.want, b.have == b.want || b.setting == "allow_atomic" && b.have, true)
	}
	compare("storage", have.Storage, want.Storage, have.Storage == want.Storage, false)
	compare("num_replicas", have.Replicas, want.Replicas, have.Replicas == want.Replicas, false)
	return found
}
