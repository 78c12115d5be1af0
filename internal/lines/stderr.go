package lines

import (
	"context"
	"log/slog"
	"os"
	"time"
)

const (
	stderrRate    = 20 // lines a second
	stderrLongest = 4 << 10
)

// LogStderr has everything go into the log that libraries, and the programs that they start, write
// to os.Stderr: client-go gives it to the credential plugins of a kubeconfig and cannot be told
// otherwise. It is called once, before anything else runs, by a program whose log has the real one.
// What the runtime says when the process dies goes to the real one as before. end logs what is
// left.
func LogStderr(ctx context.Context, log *slog.Logger) (end func(), err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	was := os.Stderr
	os.Stderr = to
	done := make(chan struct{})
	go func() {
		defer close(done)
		said := NewOf("a library or a credential plugin says", log, stderrRate, stderrLongest)
		w := said.Writer(context.WithoutCancel(ctx), "stderr", slog.LevelWarn)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			_, _ = w.Write(buf[:n]) // it never fails
			if err != nil {
				w.Flush()
				return
			}
		}
	}()
	return func() {
		os.Stderr = was
		_ = to.Close() // nothing is buffered
		// a program that was started may keep the other end
		_ = from.SetReadDeadline(time.Now().Add(time.Second))
		<-done
		_ = from.Close() // it was only read
	}, nil
}
