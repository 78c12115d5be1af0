package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// consumeRouter uses the router's informer core: wire → cache with one CEL index.
func consumeRouter(c consumer) error {
	return consume(c, informer.Wanted{})
}

// consumeKept is consumeRouter with a cache that keeps the fields of the index and two others.
func consumeKept(c consumer) error {
	fields := [][]string{{"spec", "nodeName"}, {"status", "phase"}, {"metadata", "labels", "app"}}
	return consume(c, informer.Wanted{Spec: informer.Spec{Cache: config.CacheAuto}, Kept: fields})
}

func consume(c consumer, wanted informer.Wanted) error {
	client, err := informer.NewClientFor(&rest.Config{Host: c.url, QPS: -1})
	if err != nil {
		return err
	}
	m, log := metrics.New(), slog.New(slog.DiscardHandler)
	byNode, err := nodeIndex(m, log)
	if err != nil {
		return err
	}
	updates := &updateCounter{last: int64(c.updates), done: make(chan struct{})}
	factory := informer.New(informer.Config{Client: client, Cluster: "bench", Metrics: m, Log: log, Downstream: updates})
	wanted.Spec.Resource = corev1.SchemeGroupVersion.WithResource("pods")
	wanted.Store, wanted.Sources = index.NewStore(byNode), []informer.Source{{Name: "pods"}}
	wanted.Add(factory)

	c.begin()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go factory.Run(ctx)
	<-factory.Synced("pods")
	if err := c.synced(); err != nil {
		return err
	}
	<-updates.done
	return c.done()
}

func nodeIndex(m *metrics.Metrics, log *slog.Logger) (index.Spec, error) {
	const text = "object.spec.nodeName"
	env, err := cel.NewEnv(cel.EnvConfig{Cluster: "bench", Sources: map[string][]string{"pods": index.Builtins()}})
	if err != nil {
		return index.Spec{}, err
	}
	program, err := env.Compile(text, cel.Index, "pods")
	if err != nil {
		return index.Spec{}, err
	}
	return index.NewSpec([]string{text}, []*cel.Program{program}, m.IndexErrors.WithLabelValues("pods", "byNode"), log, "pods.byNode"), nil
}

// updateCounter is a downstream without routes.
type updateCounter struct {
	seen atomic.Int64
	last int64
	done chan struct{}
}

func (u *updateCounter) Admit(_ context.Context, d *event.Delta) (event.Admission, error) {
	if d.Op == event.Updated && u.seen.Add(1) == u.last {
		close(u.done)
	}
	return nil, nil //nolint:nilnil // the delta is counted, not enqueued
}
