package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// compilers is the number of functions that are compiled at the same time.
const compilers = 2

// compile meters and compiles the module, or loads it from the cache, because the compilation of a
// Go program takes a second or two.
func (e *Engine) compile(ctx context.Context) error {
	metered, err := e.meter()
	if err != nil {
		return fmt.Errorf("it cannot be compiled: %w", err)
	}
	if e.profiler != nil {
		e.profiler.functions = metered.Functions
	}
	if err := e.Protocol.CheckImports(e.Host, metered.Imports); err != nil {
		return err
	}
	own := *metered
	e.metered = &own
	defer func() { // the compiled code replaces them
		e.Module, e.metered.Code, e.metered.Imports = nil, nil, nil
	}()
	if e.Env.Cache != "" && e.profiler == nil { // the code of a replay calls the profiler
		err := e.compileWith(ctx, codeCache{filepath.Join(e.Env.Cache, "wasm"), maxCode})
		if err == nil || ctx.Err() != nil {
			return err
		}
		e.Env.Log.Debug("compiling once more, without the cache", "err", err)
	}
	return e.compileWith(ctx, codeCache{})
}

// meter returns the metered module.
func (e *Engine) meter() (*meter.Module, error) {
	rewrite := func() (*meter.Module, error) {
		return meter.Rewrite(e.Module, meter.Config{Init: math.MaxInt64 / 2, Slice: host.MaxSlice, Stack: e.Protocol.Stack()})
	}
	if e.Shared == nil {
		return rewrite()
	}
	e.Shared.once.Do(func() { e.Shared.metered, e.Shared.err = rewrite() })
	return e.Shared.metered, e.Shared.err
}

// Shared has the metered and the compiled code of a module that several engines of a process use.
// The compiled code is not here if [plugins.Env].Cache keeps it on disk. Both stay in memory until
// the process ends. It is safe for concurrent use.
type Shared struct {
	code    wazero.CompilationCache
	once    sync.Once
	metered *meter.Module
	err     error
}

// NewShared returns a Shared without results.
func NewShared() *Shared { return &Shared{code: wazero.NewCompilationCache()} }

func (e *Engine) compileWith(ctx context.Context, c codeCache) error {
	conf := wazero.NewRuntimeConfig().WithMemoryLimitPages(uint32(uint64(e.Limits.Memory) / abi.PageSize))
	e.closeCode = nil
	place, err := c.open(e.metered.Code)
	if err != nil {
		e.Env.Log.Warn("compiled modules cannot be kept, so each start compiles them", "err", fileerr.Explain(err))
	}
	kept := place.kept
	switch {
	case place.dir != "":
		cache, err := wazero.NewCompilationCacheWithDir(place.dir)
		if err != nil {
			return err
		}
		conf, e.closeCode = conf.WithCompilationCache(cache), cache.Close
	case e.Shared != nil:
		conf = conf.WithCompilationCache(e.Shared.code)
	case e.profiler == nil: // else the code has its calls
		var cache wazero.CompilationCache
		cache, kept, e.closeCode = process().use(e.metered.Code)
		conf = conf.WithCompilationCache(cache)
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, conf)
	began := time.Now()
	slow := !kept && len(e.metered.Code) >= slowCode
	if slow { // a reload is silent meanwhile
		e.Env.Log.Info("compiling the module, which may take seconds", "bytes", len(e.metered.Code))
	}
	// before the entry is kept, because it contains this code too
	if e.pauses, err = host.ProvidePauses(ctx, e.runtime); err == nil {
		// With workers wazero checks ctx after each function, and package meter limits the size of
		// a function.
		e.compiled, err = e.runtime.CompileModule(experimental.WithCompilationWorkers(ctx, compilers), e.metered.Code)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("it cannot be compiled: %w", err), e.Close(ctx))
		if !kept || ctx.Err() == nil {
			place.discard()
		}
		return err
	}
	if slow {
		e.Env.Log.Info("compiled the module", "took", time.Since(began))
	}
	if err := c.keep(place); err != nil {
		e.Env.Log.Warn("the compiled module cannot be kept, so the next start compiles it again", "err", fileerr.Explain(err))
	}
	return nil
}

// process has the code of all open modules of this process that is not on disk. Each include has
// instances of its own of the handlers that it is granted: without state.dir, the router would
// compile their modules again for each of twenty teams.
var process = sync.OnceValue(func() *openCode { return &openCode{of: make(map[[sha256.Size]byte]*users)} })

// openCode has the compiled code of open modules by the hashes of the modules.
type openCode struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]*users
}

// users are the engines that use one code.
type users struct {
	cache wazero.CompilationCache
	n     int
}

// use returns the cache for the code of a module, and whether another engine uses it already. The
// last of the returned functions to be called frees the code; an engine calls its own once.
func (o *openCode) use(module []byte) (cache wazero.CompilationCache, used bool, end func(context.Context) error) {
	hash := sha256.Sum256(module)
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.of[hash]
	if used = u != nil; !used {
		u = &users{cache: wazero.NewCompilationCache()}
		o.of[hash] = u
	}
	u.n++
	return u.cache, used, func(ctx context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if u.n--; u.n > 0 {
			return nil
		}
		delete(o.of, hash)
		return u.cache.Close(ctx)
	}
}

// slowCode is the size of a module whose compilation is logged: about half a second.
const slowCode = 512 << 10
