// Requests to a file through Qt's QRandomAccessAsyncFile: files-qt TASKS REQUESTS FILE
// Each task writes 4 KiB and reads them back, one request after the other, all through one object in
// one event loop. Prints requests a second.
#include <QtCore/QCoreApplication>
#include <QtCore/QElapsedTimer>
#include <QtCore/private/qiooperation_p.h>
#include <QtCore/private/qrandomaccessasyncfile_p.h>
#include <cstdio>
#include <vector>

namespace {

constexpr qint64 Size = 4096;
const QByteArray Content(Size, 7);

struct Task {
    QRandomAccessAsyncFile *file;
    qint64 at;
    int left;
    int *running;

    void next() {
        if (left-- == 0) {
            if (--*running == 0) QCoreApplication::quit();
            return;
        }
        if (left % 2) wait(file->write(at, Content));
        else wait(file->read(at, Size));
    }

    void wait(QIOReadWriteOperationBase *operation) {
        QObject::connect(operation, &QIOOperation::finished, file, [this, operation] {
            if (operation->error() != QIOOperation::Error::None ||
                operation->numBytesProcessed() != Size)
                qFatal("a request failed: %d", int(operation->error()));
            operation->deleteLater();
            next();
        });
    }
};

} // namespace

int main(int argc, char **argv) {
    QCoreApplication application(argc, argv);
    if (argc != 4) qFatal("usage: files-qt TASKS REQUESTS FILE");
    int running = atoi(argv[1]);
    const int each = atoi(argv[2]) / running;
    QRandomAccessAsyncFile file;
    std::vector<Task> tasks;
    for (int i = 0; i < running; i++) tasks.push_back({&file, i * Size, each, &running});
    QElapsedTimer clock;
    QIOOperation *opened = file.open(QString::fromLocal8Bit(argv[3]), QIODeviceBase::ReadWrite);
    QObject::connect(opened, &QIOOperation::finished, &file, [&] {
        if (opened->error() != QIOOperation::Error::None) qFatal("%s cannot be opened", argv[3]);
        clock.start();
        for (Task &task : tasks) task.next();
    });
    const int status = application.exec();
    printf("%f\n", double(each) * double(tasks.size()) * 1e9 / double(clock.nsecsElapsed()));
    return status;
}
