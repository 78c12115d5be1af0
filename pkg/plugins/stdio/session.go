package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/tetratelabs/wazero/sys"

	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// session passes deltas to one command. Its main function is a coroutine: it runs while the session
// waits in resume, and waits in Read while the session runs.
type session struct {
	limits  *abi.Limits
	explain func(error) error

	ctx  current
	next func() (struct{}, bool) // runs the command until it waits for input
	stop func()
	wait func(struct{}) bool // called by the command; false: there will be no input
	err  error               // of the main function
	over bool                // the main function has returned
	fail bool                // the last call failed, so the command is not told of its end
	eof  bool                // stdin has ended

	input   []byte // the rest of the line on stdin
	line    []byte // the begin of a line on stdout
	answers []string
	waits   bool // a delta waits for its answer
	others  int  // lines since the delta was passed that are no answers
	long    bool // an answer was too long

	stray *lines.Writer
}

var (
	_ engine.Process = (*session)(nil)
	_ host.Console   = (*session)(nil)
)

// current is a context that becomes another one with each call. The main function of a command
// keeps the context of its start.
type current struct{ context.Context } //nolint:containedctx // that is its purpose

func newSession(in *engine.Instance) *session {
	s := &session{limits: &in.Settings().Limits, explain: in.Explain}
	s.stray = in.Connect(s)
	start := in.Module().ExportedFunction("_start")
	s.next, s.stop = iter.Pull(func(yield func(struct{}) bool) {
		s.wait = yield
		_, s.err = start.Call(&s.ctx)
		s.over = true
	})
	return s
}

// resume runs the command until it asks for more input than there is. It returns false if the
// command has ended.
func (s *session) resume(ctx context.Context) bool {
	s.ctx.Context = ctx //nolint:fatcontext // it replaces the previous one
	_, waits := s.next()
	return waits
}

// failure returns the error of a command that has ended. Exit code 0 is none.
func (s *session) failure() error {
	var exit *sys.ExitError
	if s.err == nil || errors.As(s.err, &exit) && exit.ExitCode() == 0 {
		return nil
	}
	return s.explain(s.err)
}

// Handle implements [engine.Session]. A batch has one delta.
func (s *session) Handle(ctx context.Context, batch []*event.Delta, _ int) ([]plugins.Result, error) {
	results := make([]plugins.Result, 0, len(batch))
	for _, d := range batch {
		r, err := s.pass(ctx, d)
		if err != nil {
			s.fail = true
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// pass passes a delta to the command, and returns its answer when the command waits again.
func (s *session) pass(ctx context.Context, d *event.Delta) (plugins.Result, error) {
	s.input = append(abi.AppendDelta(s.input[:0], d), '\n')
	s.answers, s.others, s.long, s.waits = s.answers[:0], 0, false, true
	defer func() { s.waits = false }()
	if !s.resume(ctx) {
		if err := s.failure(); err != nil {
			return plugins.Result{}, err
		}
		s.endLine() // the last line of a file needs no newline
	}
	switch n := len(s.answers); {
	case s.long:
		return plugins.Result{}, fmt.Errorf("%w: more than %d bytes (limits.output)", abi.ErrTooMuch, s.limits.Output)
	case n == 1:
		return abi.ParseAnswer(s.limits, s.answers[0]), nil
	case n > 1:
		return plugins.Result{}, fmt.Errorf("%w: it printed %d answers to one delta: print one line per delta", abi.ErrMalformed, n)
	case s.over:
		return plugins.Result{}, errors.New("the guest exited with code 0 before it answered")
	}
	return plugins.Result{}, fmt.Errorf("%w: it asks for the next delta, but has not answered this one: print one line such as {\"events\": []}, and flush stdout%s", abi.ErrMalformed, s.hint())
}

// hint describes the lines that were no answers.
func (s *session) hint() string {
	switch {
	case len(s.line) > 0:
		return "; its last line has no newline"
	case s.others > 0:
		return fmt.Sprintf("; the log has %d lines that are no answers", s.others)
	}
	return ""
}

// Read implements [host.Console]. The command waits here for the next delta.
func (s *session) Read(most int) []byte {
	if len(s.input) == 0 && !s.eof && !s.wait(struct{}{}) {
		s.eof = true
		if s.fail {
			panic(errStopped) //nolint:forbidigo // how wazero unwinds a guest
		}
	}
	n := min(most, len(s.input))
	piece := s.input[:n]
	s.input = s.input[n:]
	return piece
}

var errStopped = errors.New("the guest is not used any more")

// Write implements [host.Console]. It collects a line up to the longest answer.
func (s *session) Write(text []byte) {
	for {
		line, after, ended := bytes.Cut(text, []byte("\n"))
		if room := int(s.limits.Output) + 1 - len(s.line); room > 0 {
			s.line = append(s.line, line[:min(len(line), room)]...)
		}
		if !ended {
			return
		}
		s.endLine()
		text = after
	}
}

// keepLine is the capacity of the buffer for a line that is kept for the next line.
const keepLine = 64 << 10

// endLine takes a line as an answer, or logs it.
func (s *session) endLine() {
	line := bytes.TrimSpace(s.line)
	switch tooLong := len(s.line) > int(s.limits.Output); {
	case len(line) == 0:
	case s.waits && tooLong && line[0] == '{':
		s.long = true
	case s.waits && !tooLong && isAnswer(line):
		s.answers = append(s.answers, string(line))
	default:
		s.others++
		_, _ = s.stray.Write(append(line, '\n')) // never fails
	}
	s.line = s.line[:0]
	if cap(s.line) > keepLine {
		s.line = nil
	}
}

// isAnswer reports whether a line is an answer: a JSON object with one of the members of answers
// and no other member. So a line of a structured log is none.
func isAnswer(line []byte) bool {
	if line[0] != '{' || rawjson.Check(string(line)) != nil {
		return false
	}
	verdicts := 0
	for key := range rawjson.Value(line).Fields() {
		switch key {
		case "events", "drop", "retry", "error":
			verdicts++
		case "afterMs":
		default:
			return false
		}
	}
	return verdicts > 0
}

// Ended implements [engine.Process].
func (s *session) Ended() bool { return s.over }

// Stop implements [engine.Process]. An idle command finds the end of stdin, and may print its last
// lines.
func (s *session) Stop(ctx context.Context) {
	s.ctx.Context = ctx //nolint:fatcontext // it replaces the previous one
	s.stop()
	s.endLine()
}
