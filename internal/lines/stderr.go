package lines

import (
	"context"
	"log/slog"
	"os"
	"time"
)

const (
	stderrRate    = 20 // lines per second
	stderrLongest = 4 << 10
)

// LogStderr redirects os.Stderr to the log. Libraries, and the programs that they start, write
// there: client-go passes it to the credential plugins of a kubeconfig and has no option for that.
// Call it once, before anything else runs, in a program whose log writes to the real stderr.
// Messages of the Go runtime about a crash still go to the real stderr. end logs the rest and
// restores os.Stderr.
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
		_ = to.Close() // there is no buffer to flush
		// a started program may keep the other end open
		_ = from.SetReadDeadline(time.Now().Add(time.Second))
		<-done
		_ = from.Close() // it was only read
	}, nil
}
