// Package stdout is the sink kind `stdout`: it prints events, either as one CloudEvent in JSON per
// line or as readable lines.
package stdout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// sinkConfig is the configuration below `stdout:`.
type sinkConfig struct {
	Format string `yaml:"format" default:"json" enum:"json text" doc:"json: a CloudEvent per line. text: short readable lines."`
}

// Kind returns the kind of sink `stdout`.
func Kind() plugins.SinkKind {
	return plugins.SinkDefinition[sinkConfig]{New: newSink, Definition: plugins.Definition[sinkConfig]{
		Name:    "stdout",
		Doc:     "Writes a line per event to standard output.",
		Example: "format: json # or text\n",
	}}
}

func newSink(_ context.Context, c sinkConfig, env plugins.SinkEnv) (plugins.Sink, error) {
	s := &sink{out: env.Stdout, line: appendJSON, lock: make(chan struct{}, 1)}
	if c.Format == "text" {
		s.line = appendText
	}
	return s, nil
}

// sink writes complete lines. Each batch is one write, and only one write runs at a time.
type sink struct {
	out  io.Writer
	line func(b []byte, e *event.Event) []byte // appends an event and a newline
	lock chan struct{}                         // contains an element during a write
	// the last write ended with a partial line; guarded by lock
	torn bool
}

// Write implements [plugins.Sink]. A reader may stop to read, and a write to a full pipe cannot be
// cancelled. When ctx is done, Write returns and the operation continues in the background: its
// events count as not delivered, although they may be written.
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

// write is called with the lock held. After a partial write the events with complete lines are
// delivered.
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

// Close implements [plugins.Sink]. It waits for a running write.
func (s *sink) Close(ctx context.Context) error {
	select {
	case s.lock <- struct{}{}:
		<-s.lock
		return nil
	case <-ctx.Done():
		return errors.New("stdout: the reader does not read, the last lines may be missing")
	}
}

// appendJSON appends the event as a structured CloudEvent.
func appendJSON(b []byte, e *event.Event) []byte { return append(e.AppendJSON(b), '\n') }

// maxText is the maximum number of data bytes in a readable line.
const maxText = 1000

// appendText appends a line such as
//
//	15:04:05 updated  pods default/web-0  restarts  {"container":"app","restarts":4}
//
// for an event of the route restarts about an update. It omits data that is the delta itself,
// because an object has thousands of bytes.
func appendText(b []byte, e *event.Event) []byte {
	op, own := strings.CutPrefix(e.Type, event.TypePrefix)
	source := e.Source[strings.LastIndexByte(e.Source, '/')+1:]
	line := e.Time.Local().AppendFormat(nil, time.TimeOnly)
	line = fmt.Appendf(line, " %-8s %s %s  %s", op, source, e.Subject, e.Route)
	if e.Redelivered {
		line = append(line, " (redelivered)"...)
	}
	if len(e.Data) > 0 && !(own && isDelta(e.Data, op)) {
		data := rawjson.AppendLine(nil, e.Data)
		line = append(append(line, "  "...), bytes.ToValidUTF8(data[:min(len(data), maxText)], nil)...)
		if len(data) > maxText {
			line = append(line, "…"...)
		}
	}
	return append(append(b, printable.Line(string(line))...), '\n')
}

// isDelta reports whether data is the delta itself, as in a route without a handler (see
// [event.Payload]).
func isDelta(data []byte, op string) bool {
	return bytes.HasPrefix(data, []byte(`{"op":"`+op+`","object":{`))
}
