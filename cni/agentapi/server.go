// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"time"
)

const (
	// readTimeout ends a connection on which no request arrives; the plugin sends
	// it at once. It is not the whole request's: that would end a slow Add as well.
	readTimeout = 10 * time.Second
	// drainTimeout is how long requests in flight may go on once Serve is told to
	// stop.
	drainTimeout = 20 * time.Second
)

// Handler serves b: one POST per verb. A request's context ends when its caller
// hangs up. Answers other than 200 carry an Error.
func Handler(b Backend) http.Handler {
	mux := http.NewServeMux()
	handle(mux, pathAdd, b.Add)
	handle(mux, pathCheck, func(ctx context.Context, r CheckRequest) (none, error) { return none{}, b.Check(ctx, r) })
	handle(mux, pathDel, func(ctx context.Context, r DelRequest) (none, error) { return none{}, b.Del(ctx, r) })
	handle(mux, pathGC, func(ctx context.Context, r GCRequest) (none, error) { return none{}, b.GC(ctx, r) })
	handle(mux, pathStatus, func(ctx context.Context, r StatusRequest) (none, error) { return none{}, b.Status(ctx, r) })
	return mux
}

// Serve serves b on l until ctx ends or accepting fails, then lets the requests
// in flight finish. It closes l. Its error is nil if ctx ended it and all
// requests finished.
func Serve(ctx context.Context, l net.Listener, b Backend, log *slog.Logger) error {
	running := context.WithoutCancel(ctx) // a request in flight outlives ctx
	srv := &http.Server{
		Handler:           Handler(b),
		ReadHeaderTimeout: readTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return running },
	}
	drained := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		limit, cancel := context.WithTimeout(running, drainTimeout)
		defer cancel()
		drained <- srv.Shutdown(limit)
	})
	err := srv.Serve(l)
	if stop() { // ctx had no part in it
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	if err := <-drained; err != nil {
		_ = srv.Close() // cuts what is still in flight; the drain's error says so
		return fmt.Errorf("drain %s: %w", l.Addr(), err)
	}
	return nil
}

func handle[Q request, R any](mux *http.ServeMux, path string, serve func(context.Context, Q) (R, error)) {
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if status, err := readRequest(w, r, &q); err != nil {
			answer(w, status, &Error{Code: CodeUndecodable, Msg: "request " + path, Details: err.Error()})
			return
		}
		if err := q.validate(); err != nil {
			answer(w, http.StatusBadRequest, &Error{Code: CodeUndecodable, Msg: "request " + path, Details: err.Error()})
			return
		}
		reply, err := serve(r.Context(), q)
		if err != nil {
			answer(w, http.StatusUnprocessableEntity, AsError(err))
			return
		}
		answer(w, http.StatusOK, reply)
	})
}

func readRequest(w http.ResponseWriter, r *http.Request, q any) (status int, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, fmt.Errorf("method %s: want POST", r.Method)
	}
	if mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mt != contentType {
		return http.StatusUnsupportedMediaType, fmt.Errorf("content type: want %s", contentType)
	}
	if err := decode(r.Body, maxRequest, q); err != nil {
		return http.StatusBadRequest, fmt.Errorf("body: %w", err)
	}
	return 0, nil
}

// answer writes v as the whole response. A caller that is gone gets nothing, and
// nobody is left to be told.
func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encode reply: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
