package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Record is what the leader announces about a route with workers, under the token of the route.
type Record struct {
	ID   string `json:"id"`   // of the route, for people
	Hash string `json:"hash"` // of the present configuration of the route; empty: it was withdrawn
	// Generations are the generations that may have messages, the present one last.
	Generations []Generation `json:"generations"`
}

// Generation is a number of partitions.
type Generation struct {
	Number     uint64 `json:"number"`
	Partitions int    `json:"partitions"`
}

// Now returns the generation to which the leader publishes.
func (r *Record) Now() Generation { return r.Generations[len(r.Generations)-1] }

// Empty reports whether a generation of a route has no message.
type Empty func(ctx context.Context, route string, generation uint64) (bool, error)

// Announce announces the configuration of a route, and returns the generation to publish to: the
// present one, or the next one if the number of partitions has changed. Generations before it that
// have no messages any more are forgotten. The caller publishes no message of an earlier generation
// from then on, and there is one caller at a time. Temporary errors are retried until ctx ends.
func Announce(ctx context.Context, s Store, route, id, hash string, partitions int, empty Empty) (generation uint64, err error) {
	for {
		generation, err = announce(ctx, s, route, Record{ID: id, Hash: hash}, partitions, empty)
		if err == nil {
			return generation, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("announce route %q: %w", id, errors.Join(err, ctx.Err()))
		case <-time.After(announceRetry):
		}
	}
}

// announceRetry is the pause between two attempts to announce a route.
const announceRetry = 200 * time.Millisecond

func announce(ctx context.Context, s Store, route string, next Record, partitions int, empty Empty) (uint64, error) {
	data, revision, err := s.Get(ctx, route)
	if err != nil {
		return 0, err
	}
	before, err := decodeRecord(data)
	if err != nil {
		return 0, err
	}
	next.Generations, err = before.generations(ctx, route, partitions, empty)
	if err != nil {
		return 0, err
	}
	now := next.Now().Number
	text, err := json.Marshal(next)
	if err != nil {
		return 0, err
	}
	if string(text) == string(data) {
		return now, nil
	}
	_, err = s.Put(ctx, route, text, revision)
	return now, err
}

// generations returns the generations that may have messages from now on.
func (r *Record) generations(ctx context.Context, route string, partitions int, empty Empty) ([]Generation, error) {
	if len(r.Generations) == 0 {
		return []Generation{{1, partitions}}, nil
	}
	present := r.Now()
	var all []Generation
	for _, g := range r.Generations[:len(r.Generations)-1] {
		done, err := empty(ctx, route, g.Number)
		if err != nil {
			return nil, err
		}
		if len(all) > 0 || !done {
			all = append(all, g)
		}
	}
	all = append(all, present)
	if present.Partitions != partitions {
		all = append(all, Generation{present.Number + 1, partitions})
	}
	return all, nil
}

// Withdraw says that the leader publishes no messages of a route any more: no worker handles it
// until it is announced again. Its generations stay. The caller is the one of [Announce].
func Withdraw(ctx context.Context, s Store, route string) error {
	data, revision, err := s.Get(ctx, route)
	if err != nil {
		return err
	}
	r, err := decodeRecord(data)
	if err != nil || r.Hash == "" {
		return err
	}
	r.Hash = ""
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = s.Put(ctx, route, text, revision)
	return err
}

// Restore writes the record of a route if the bucket has lost it, from the generations that have
// messages. It begins a generation behind them: the number of partitions of the last one is not
// known. The caller is the one of [Announce].
func Restore(ctx context.Context, s Store, route, id string, partitions int, found func(context.Context, string) ([]Generation, error)) error {
	data, revision, err := s.Get(ctx, route)
	if err != nil || len(data) > 0 {
		return err
	}
	generations, err := found(ctx, id)
	if err != nil || len(generations) == 0 {
		return err
	}
	r := Record{ID: id, Generations: generations}
	r.Generations = append(r.Generations, Generation{r.Now().Number + 1, partitions})
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = s.Put(ctx, route, text, revision)
	return err
}

// Announced returns the record of a route as the leader of its stream has it: a replica may be
// behind.
func Announced(ctx context.Context, conn *nats.Conn, bucket, route string) (Record, error) {
	request, err := json.Marshal(map[string]string{"last_by_subj": "$KV." + bucket + "." + route})
	if err != nil {
		return Record{}, err
	}
	answer, err := conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_"+bucket, request)
	if err != nil {
		return Record{}, fmt.Errorf("read the record of a route: %w", err)
	}
	var got struct {
		Message struct {
			Data []byte `json:"data"`
		} `json:"message"`
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return Record{}, fmt.Errorf("read the record of a route: %w", err)
	}
	if got.Error != nil {
		return Record{}, fmt.Errorf("read the record of a route: %s", got.Error.Description)
	}
	return decodeRecord(got.Message.Data)
}

func decodeRecord(data []byte) (r Record, err error) {
	if len(data) == 0 {
		return r, nil
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("record of a route: %w", err)
	}
	return r, nil
}
