package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/link"
	"github.com/dispatcher-engine/dispatcher/bench/worker"
)

// session is the two processes of `bench transports` and the link between them.
type session struct {
	client, server *worker.Worker
	link           *link.Link // nil = loopback
	servers        servers
	rootless       bool // the namespaces are inside user namespaces
}

// ErrNoLink says that the emulated link cannot be made here.
var ErrNoLink = errors.New("no network namespaces with a TUN device here (they need Linux, and root or user namespaces that may open /dev/net/tun): run it as root, or use --link loopback, which emulates nothing")

// openSession starts both processes and, unless it is loopback, puts each into a
// namespace of its own with the link in between.
func openSession(ctx context.Context, dir *host.RunDir, emulated bool) (s *session, err error) {
	s = &session{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if !emulated {
		if s.server, err = s.start(dir, "server", worker.Shared, nil); err != nil {
			return s, err
		}
		if s.client, err = s.start(dir, "client", worker.Shared, nil); err != nil {
			return s, err
		}
		return s, s.introduce(ctx)
	}
	server, serverDevice, err := s.join(dir, "server")
	s.server = server
	if err != nil {
		return s, err
	}
	client, clientDevice, err := s.join(dir, "client")
	s.client = client
	if err != nil {
		return s, errors.Join(err, serverDevice.Close())
	}
	s.link = link.New(clientDevice, serverDevice)
	return s, s.introduce(ctx)
}

// start starts one of the processes.
func (s *session) start(dir *host.RunDir, name string, ns worker.Namespace, inherit *os.File) (*worker.Worker, error) {
	c := worker.Command{Name: name, Args: []string{"bench", "worker", "link-" + name}, Log: dir.Join(name + ".log"), Network: ns}
	if inherit != nil {
		c.Args = append(c.Args, "join")
		c.Files = []*os.File{inherit}
	}
	return worker.StartWorker(c)
}

// join starts a process in a namespace and receives its device: with a network
// namespace alone where that is permitted, else inside a user namespace.
func (s *session) join(dir *host.RunDir, name string) (*worker.Worker, *os.File, error) {
	var errs []error
	for _, ns := range []worker.Namespace{worker.Network, worker.Unshared} {
		parent, child, err := link.Socket()
		if err != nil {
			return nil, nil, fmt.Errorf("%w (%w)", ErrNoLink, err)
		}
		w, err := s.start(dir, name, ns, child)
		_ = child.Close()
		if err != nil {
			_ = parent.Close()
			errs = append(errs, err)
			continue
		}
		device, err := link.Receive(parent)
		if err == nil {
			s.rootless = s.rootless || ns == worker.Unshared
			return w, device, nil
		}
		// It has ended, or does now; its own words are the better explanation.
		const patience = 2 * time.Second
		errs = append(errs, err, w.Stop(patience))
	}
	return nil, nil, fmt.Errorf("%w (%w)", ErrNoLink, errors.Join(errs...))
}

// introduce tells the client where the servers are.
func (s *session) introduce(ctx context.Context) error {
	if err := s.server.Call(ctx, "info", nil, &s.servers); err != nil {
		return err
	}
	return s.client.Call(ctx, "servers", s.servers, nil)
}

func (s *session) close() error {
	const patience = 15 * time.Second
	var errs []error
	for _, w := range []*worker.Worker{s.client, s.server} {
		if w != nil {
			errs = append(errs, w.Stop(patience))
		}
	}
	if s.link != nil {
		errs = append(errs, s.link.Close())
	}
	return errors.Join(errs...)
}

// take returns what crossed the link since the last call.
func (s *session) take() link.Counts {
	if s.link == nil {
		return link.Counts{}
	}
	return s.link.Take()
}

// set sets the link to a network.
func (s *session) set(n Network, seed uint64) error {
	if s.link == nil {
		return nil
	}
	return s.link.Set(n.shape(), n.shape(), linkRules, seed)
}
