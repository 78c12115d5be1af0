package wire

import (
	"runtime"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// ahead decodes a stream on all cores. One goroutine, the splitter, reads the stream and cuts it
// into blocks, others decode the blocks, and next returns the results in the order of the stream.
// There are at most blocksPerCore blocks for each core, so a consumer that stops also stops the
// reads.
//
// The splitter only looks for the ends of values. At a text in which it finds none it leaves the
// stream, and at a text that is not as expected next leaves the blocks: the caller then decodes the
// rest in one goroutine, from rest. So all errors are those of that decoder.
type ahead struct {
	in      *Stream
	blocks  chan *block // in the order of the stream; closed when the splitter has left it
	free    chan *block
	stop    chan struct{} // closed to make the splitter leave the stream before its next read
	running sync.WaitGroup

	// These belong to the consumer.
	now     *block // nil: none
	at      int    // the number of results of now that were returned
	stopped bool
	begun   bool // a part of the stream was decoded
	over    bool // next has returned false
}

const blocksPerCore = 2

// block is a part of a stream.
type block struct {
	text    []byte
	results []result
	left    int           // the offset of the text that was not decoded; len(text): none
	decoded chan struct{} // receives one value
}

// result is an event of a watch or an item of a list, or why it cannot be read.
type result struct {
	event watch.Event
	err   error
}

func severalCores() bool { return runtime.GOMAXPROCS(0) > 1 }

// extentOf returns the length of the value at the start of a text; 0: it is not complete, or no
// JSON.
func extentOf(text []byte) int {
	var e extent
	if n, done, err := e.feed(text); done && err == nil {
		return n
	}
	return 0
}

// inAhead begins to decode a stream. Each core gets a function of its own that decodes a block.
func inAhead(in *Stream, split splitter, decoder func() func(*block)) *ahead {
	cores := runtime.GOMAXPROCS(0)
	n := cores * blocksPerCore
	a := &ahead{in: in, blocks: make(chan *block, n), free: make(chan *block, n), stop: make(chan struct{})}
	for range n {
		a.free <- &block{decoded: make(chan struct{}, 1)}
	}
	todo := make(chan *block, n)
	a.running.Go(func() {
		defer close(a.blocks)
		defer close(todo)
		a.split(split, todo)
	})
	for range cores {
		a.running.Go(func() {
			decode := decoder()
			for b := range todo {
				decode(b)
				b.decoded <- struct{}{}
			}
		})
	}
	return a
}

func (a *ahead) split(split splitter, todo chan<- *block) {
	for {
		n, want := split(a.in)
		if n > 0 {
			var b *block
			select {
			case b = <-a.free:
			case <-a.stop:
				return
			}
			b.text = append(b.text[:0], a.in.unread()[:n]...)
			a.in.advance(n)
			// blocks keeps the order; todo goes to any core. Both have room for all blocks.
			a.blocks <- b
			todo <- b
			continue
		}
		// A read may block for long, so a stop is noticed before it.
		select {
		case <-a.stop:
			return
		default:
		}
		if before := len(a.in.unread()); want == 0 || !a.in.fill(want) && len(a.in.unread()) == before {
			return
		}
	}
}

// next returns the next result. ok is false if there are no more: the stream goes on in rest.
func (a *ahead) next() (r result, ok bool) {
	for {
		if a.now != nil {
			if a.at < len(a.now.results) {
				a.at++
				return a.now.results[a.at-1], true
			}
			a.begun = a.begun || a.now.left > 0
			if a.now.left < len(a.now.text) {
				a.over = true
				return result{}, false
			}
			a.release()
		}
		if a.now, ok = <-a.blocks; !ok {
			a.over = true
			return result{}, false
		}
		<-a.now.decoded
		a.at = 0
	}
}

func (a *ahead) release() {
	clear(a.now.results) // they hold objects
	a.now.results = a.now.results[:0]
	a.free <- a.now
	a.now = nil
}

// rest returns the stream behind the last result, after next has returned false.
func (a *ahead) rest() *Stream {
	if a.now == nil {
		a.running.Wait()
		return a.in
	}
	rest := NewStream(remaining{a}, func() {})
	rest.max = a.in.max
	return rest
}

// remaining reads the text that was not decoded.
type remaining struct{ a *ahead }

// Read implements io.Reader.
func (r remaining) Read(p []byte) (n int, err error) {
	a := r.a
	for a.now != nil {
		if n = copy(p, a.now.text[a.now.left:]); n > 0 {
			a.now.left += n
			return n, nil
		}
		a.release()
		if b, ok := <-a.blocks; ok {
			<-b.decoded
			a.now, b.left = b, 0
		}
	}
	a.running.Wait()
	if a.in.start == a.in.end {
		if err := a.in.more(); err != nil {
			return 0, err
		}
	}
	n = copy(p, a.in.unread())
	a.in.advance(n)
	return n, nil
}

// halt makes the splitter leave the stream before its next read.
func (a *ahead) halt() {
	if !a.stopped {
		a.stopped = true
		close(a.stop)
	}
}

// close ends all goroutines. A read of the splitter must have ended, or end soon.
func (a *ahead) close() {
	a.halt()
	for range a.blocks {
	}
	a.running.Wait()
}
