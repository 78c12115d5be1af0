package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/bench/report"
	"github.com/deltarouter/deltarouter/test/natstest"
)

// published is the number of messages of one measurement of compareWork.
const published = 20_000

// marking is a way by which a new leader can find out which events the former one has published.
type marking string

const (
	unmarked marking = "no ids"
	byID     marking = "Nats-Msg-Id"
	byList   marking = "a list of ids per batch"
)

// compareWork measures the passing of deltas to workers: the leader's CPU for encoding and
// publishing a delta of a pod, and that of three servers of NATS on this machine.
func compareWork(out *report.Report, rounds int) error {
	t := report.Table{
		Part: "workers", Title: "Deltas to workers, three servers", Labels: []string{"messages"},
		Columns: []report.Column{
			{Name: "messages/s", Format: "%.0f"}, {Name: "p50 ms", Format: "%.1f"}, {Name: "our µs each", Format: "%.1f"}, {Name: "servers' µs", Format: "%.0f"},
		},
	}
	deltas, err := changesOf(200)
	if err != nil {
		return err
	}
	for _, size := range []int{50, 200} {
		for _, by := range []marking{unmarked, byID, byList} {
			var rates, ours, theirs, latencies []float64
			for range rounds {
				m, err := publishWork(deltas, size, by)
				if err != nil {
					return err
				}
				rates, ours, theirs, latencies = append(rates, m.rate), append(ours, m.our), append(theirs, m.their), append(latencies, m.latency)
			}
			t.Rows = append(t.Rows, report.Row{
				Labels:  []string{fmt.Sprintf("batches of %d, %s", size, by)},
				Figures: []float64{middle(rates), middle(latencies), middle(ours), middle(theirs)},
			})
		}
	}
	return out.Add(t)
}

// changesOf returns changes of the pods of this command.
func changesOf(n int) (deltas []*event.Delta, err error) {
	frames, err := newPodFrames()
	if err != nil {
		return nil, err
	}
	resource := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Cluster: "bench", Kind: "Pod"}
	for i := range n {
		d := &event.Delta{Source: "pods", Op: event.Updated, Seen: time.Now()}
		for k, to := range []**event.Object{&d.Old, &d.New} {
			var frame struct{ Object json.RawMessage }
			if err = json.Unmarshal(frames.json["MODIFIED"].fill(i, k), &frame); err != nil {
				return nil, err
			}
			if *to, err = event.ParseObject(resource, string(frame.Object)); err != nil {
				return nil, err
			}
		}
		deltas = append(deltas, d)
	}
	return deltas, nil
}

// passing is the result of publishWork.
type passing struct{ rate, our, their, latency float64 }

// publishWork publishes messages in batches.
func publishWork(deltas []*event.Delta, size int, by marking) (passing, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return passing{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	servers, err := natstest.Launch(dir, natstest.Config{Servers: 3, MaxStore: 4 << 30})
	if err != nil {
		return passing{}, err
	}
	defer servers.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cfg := &config.Fleet{Name: "bench", Replicas: 3}
	cfg.NATS.Servers = servers.URLs()
	log := slog.New(slog.DiscardHandler)
	conn, err := fleet.Connect(ctx, cfg, "bench", log)
	if err != nil {
		return passing{}, err
	}
	defer func() { _ = conn.Close() }()
	for err = conn.Ensure(ctx); err != nil && ctx.Err() == nil; err = conn.Ensure(ctx) {
	}
	p, _, err := fence.Open(ctx, fence.Config{Conn: conn.NATS, Stream: conn.Names.Work(), Lead: conn.Names.WorkLead(), Holder: "bench", Log: log})
	if err != nil {
		return passing{}, err
	}
	codec := work.NewCodec()
	var latencies []float64
	begin, our, their := time.Now(), cpu(), childrenCPU()
	for sent := 0; sent < published; sent += size {
		start := time.Now()
		if _, err := p.Publish(ctx, messagesOf(conn.Names, codec, deltas, sent, size, by), nil); err != nil {
			return passing{}, err
		}
		latencies = append(latencies, float64(time.Since(start).Microseconds())/1000)
	}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / published }
	return passing{
		rate: published / time.Since(begin).Seconds(), our: each(cpu() - our), their: each(childrenCPU() - their), latency: middle(latencies),
	}, nil
}

// messagesOf encodes a batch.
func messagesOf(names fleet.Names, codec *work.Codec, deltas []*event.Delta, sent, size int, by marking) (all []*nats.Msg) {
	var list []byte
	for i := range size {
		d := deltas[(sent+i)%len(deltas)]
		id := event.New(d, "bench"+strconv.Itoa(sent+i), 0, nil).ID
		key := d.Source + "/" + d.Key().String()
		m := &nats.Msg{Subject: names.WorkSubject("bench", 1, work.Partition(key, 8), key), Header: nats.Header{}}
		m.Data = codec.Encode(&work.Message{Route: "bench", Hash: "h", Key: key, Delta: d})
		switch by {
		case byID:
			m.Header.Set(nats.MsgIdHdr, id)
		case byList:
			h := fnv.New64a()
			_, _ = h.Write([]byte(id))
			list = binary.BigEndian.AppendUint64(list, h.Sum64())
		case unmarked:
		}
		all = append(all, m)
	}
	if by == byList {
		header := nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}}
		all = append(all, &nats.Msg{Subject: fleet.WorkList(names, uint64(sent/size)), Data: list, Header: header}) //nolint:gosec // small
	}
	return all
}

// childrenCPU returns the CPU time of the processes that this one has started.
func childrenCPU() (all time.Duration) {
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return 0
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for _, pid := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(pid); err == nil {
				all += cpuOf(n)
			}
		}
	}
	return all
}
