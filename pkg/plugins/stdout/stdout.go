// Package stdout is the sink kind `stdout`: it prints events, either one CloudEvent in JSON per line or lines for people to read.
package stdout

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Config is what stands below `stdout:` in the configuration.
type Config struct {
	Format string `yaml:"format" default:"json" enum:"json text" doc:"json: a CloudEvent per line. text: short lines for people."`
}

// Factory returns the factory of the kind stdout.
func Factory() plugins.Factory[plugins.Sink] {
	return plugins.Factory[plugins.Sink]{
		Kind:    "stdout",
		Doc:     "Writes a line per event to standard output.",
		Config:  Config{},
		Example: "format: json # or text\n",
		Check:   func(node config.Node) config.Problems { return node.Decode(&Config{}) },
		Open: func(_ context.Context, node config.Node, env plugins.Env) (plugins.Sink, error) {
			var c Config
			if err := node.Decode(&c).Err(); err != nil {
				return nil, err
			}
			s := &sink{out: env.Stdout, line: appendJSON, lock: make(chan struct{}, 1)}
			if c.Format == "text" {
				s.line = appendText
			}
			return s, nil
		},
	}
}

// sink writes whole lines: a batch is one write, and there is one write at a time.
type sink struct {
	out  io.Writer
	line func(b []byte, e *event.Event) []byte // appends an event and a new line
	lock chan struct{}                         // holds an element while a write goes on
	torn bool                                  // the last write ended within a line; guarded by lock
}

// Write implements [plugins.Sink]. Whoever reads may stop reading, and a write to a full pipe cannot be called off: when ctx is done
// it is left to itself, and its events count as not delivered although they may still be.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	b := make([]byte, 0, 1024*len(events))
	ends := make([]int, len(events))
	for i := range events {
		b = s.line(b, &events[i])
		ends[i] = len(b)
	}
	select {
	case s.lock <- struct{}{}:
	case <-ctx.Done():
		return undelivered(ends, 0, ctx.Err())
	}
	done := make(chan []error, 1)
	go func() {
		defer func() { <-s.lock }()
		done <- s.write(b, ends)
	}()
	select {
	case errs := <-done:
		return errs
	case <-ctx.Done():
		return undelivered(ends, 0, ctx.Err())
	}
}

// write is called with the lock held. If only a part went out, the events whose lines are whole were delivered.
func (s *sink) write(b []byte, ends []int) []error {
	shift := 0
	if s.torn {
		b, shift = append([]byte{'\n'}, b...), 1
	}
	n, err := s.out.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if n > 0 {
		s.torn = b[n-1] != '\n'
	}
	if err == nil {
		return nil
	}
	return undelivered(ends, n-shift, err)
}

// undelivered returns an error for each event whose line does not end within the first n bytes.
func undelivered(ends []int, n int, err error) []error {
	err = fmt.Errorf("stdout: %w", err)
	errs := make([]error, len(ends))
	for i, end := range ends {
		if end > n {
			errs[i] = err
		}
	}
	return errs
}

// Close implements [plugins.Sink]. It waits for a write that goes on.
func (s *sink) Close(ctx context.Context) error {
	select {
	case s.lock <- struct{}{}:
		<-s.lock
		return nil
	case <-ctx.Done():
		return errors.New("stdout: nobody reads, the last lines may be missing")
	}
}
