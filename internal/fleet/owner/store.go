package owner

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrChanged is the error of a write whose revision is not the last one of the key.
var ErrChanged = errors.New("another worker has written the key")

// Store is a bucket of keys with revisions, which rise with each write to any key.
type Store interface {
	// Get returns the value of a key and its revision; 0: there is none. It may be outdated.
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// Put writes a value if the revision of the key is after, and returns the new revision. The
	// error is [ErrChanged] if it is another one; after any other error the value may be written.
	Put(ctx context.Context, key string, value []byte, after uint64) (revision uint64, err error)
	// Delete removes a key if its revision is after.
	Delete(ctx context.Context, key string, after uint64) error
}

// KV returns the Store of a bucket.
func KV(bucket jetstream.KeyValue) Store { return store{bucket} }

type store struct{ jetstream.KeyValue }

// Get implements [Store].
func (s store) Get(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	e, err := s.KeyValue.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyDeleted) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read key %s of bucket %s: %w", key, s.Bucket(), err)
	}
	return e.Value(), e.Revision(), nil
}

// Put implements [Store].
func (s store) Put(ctx context.Context, key string, value []byte, after uint64) (revision uint64, err error) {
	if after == 0 {
		revision, err = s.Create(ctx, key, value)
	} else {
		revision, err = s.Update(ctx, key, value, after)
	}
	return revision, s.changed(key, err)
}

// Delete implements [Store].
func (s store) Delete(ctx context.Context, key string, after uint64) error {
	return s.changed(key, s.Purge(ctx, key, jetstream.LastRevision(after)))
}

func (s store) changed(key string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return ErrChanged
	}
	return fmt.Errorf("write key %s of bucket %s: %w", key, s.Bucket(), err)
}
