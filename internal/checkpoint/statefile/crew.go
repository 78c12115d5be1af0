package statefile

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// forked is the number of children from which on a page has them walked on all cores.
const forked = 2 * run

// run is the number of children that a core takes at once: most of them lie side by side.
const run = 2 * ahead

// each calls f for the children of a page, on all cores if they are many, each time with a walker
// that no other goroutine uses. The error is that of the first child with one.
func (p *pages) each(count int, seed uint32, f func(p *pages, i int) error) error {
	// the order of the top and of the bucket meta matters, see checker
	if p.alone || count < forked || seed == 0 || seed == p.codec.Seed(0, MetaBucket) {
		for i := range count {
			if err := f(p, i); err != nil {
				return err
			}
		}
		return nil
	}
	for len(p.crew) < runtime.GOMAXPROCS(0) {
		p.crew = append(p.crew, &pages{
			file: p.file, size: p.size, pageSize: p.pageSize, meta: p.meta, usage: p.usage, codec: p.codec, visit: p.visit, alone: true,
		})
	}
	errs := make([]error, count)
	var next atomic.Int64
	var wait sync.WaitGroup
	for _, member := range p.crew {
		wait.Go(func() {
			for end := int(next.Add(run)); end-run < count; end = int(next.Add(run)) {
				for i := end - run; i < min(end, count); i++ {
					if errs[i] = Guard(func() error { return f(member, i) }); errs[i] != nil {
						next.Store(int64(count)) // children before this one are walked already, or by others
						break
					}
				}
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
